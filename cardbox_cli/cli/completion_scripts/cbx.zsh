#compdef cbx
# Completion of cbx in zsh:  source <(cbx completion zsh)  after compinit, or a file _cbx in $fpath
_cbx() {
    local program=${~${(Q)words[1]}} line="${(j: :)words[1,CURRENT-1]} $PREFIX"
    local kind value description files
    local -a rows
    while IFS=$'\t' read -r kind value description; do
        case $kind in
            plain) rows+=("${${value//\\/\\\\}//:/\\:}${description:+:$description}") ;;
            file) files=1 ;;
        esac
    done < <(_CBX_COMPLETE=zsh _CBX_LINE=$line $program 2>/dev/null)
    (( $#rows )) && _describe -V cbx rows
    [[ -n $files ]] && _files
    (( $#rows )) || [[ -n $files ]]
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _cbx "$@"
else
    compdef _cbx cbx
fi
