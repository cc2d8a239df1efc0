# Completion of cbx in bash:  source <(cbx completion bash)
_cbx() {
    local kind value description files=
    COMPREPLY=()
    while IFS=$'\t' read -r kind value description; do
        case $kind in
            plain) COMPREPLY+=("$value") ;;
            file) files=1 ;;
        esac
    done < <(_CBX_COMPLETE=bash _CBX_LINE=${COMP_LINE:0:COMP_POINT} "$1" 2>/dev/null)
    [[ $files ]] || return 0
    if ((${#COMPREPLY[@]})); then
        while IFS= read -r value; do COMPREPLY+=("$value"); done < <(compgen -f -- "$2")
        compopt -o filenames 2>/dev/null
    else
        compopt -o default 2>/dev/null
    fi
    return 0
}
complete -o nosort -F _cbx cbx 2>/dev/null || complete -F _cbx cbx
