# cbx as a function of this shell:  eval "$(cbx shell --hook bash)"
# Simple commands are answered by one co-process that ends with this shell; all others are processes as ever.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    printf 'end\n' 1<>@FOLDER@/requests
    printf 'cbx: no hook: it takes bash 4.4 or newer, and this is %s; cbx works as before\n' "${BASH_VERSION:-another shell}" >&2
else
    printf 'shell %s\n' $$ 1<>@FOLDER@/requests
    cbx() {
        local -
        set +eux -C
        # Left out where nothing can be asked for: its process is gone, or all places are taken.
        local _cbx_at=@FOLDER@ _cbx_slot= _cbx_name _cbx_code= _cbx_pieces _cbx_text _cbx_piece=0 _cbx_failed=
        local _cbx_out= _cbx_err=
        [[ -t 1 ]] && _cbx_out=tty
        [[ -t 2 ]] && _cbx_err=tty
        local -a _cbx_fields=("$#" "$@" "$PWD" "$_cbx_out" "$_cbx_err" "COLUMNS=${COLUMNS-}")
        for _cbx_name in "${!CBX_@}" "${!PG@}" @VARIABLES@; do
            [[ ${!_cbx_name@a} == *x* ]] && _cbx_fields+=("$_cbx_name=${!_cbx_name}")
        done
        if [[ -z ${_CBX_COMPLETE-} ]] && kill -0 @SERVER@ 2>/dev/null; then
            for _cbx_name in {1..@SLOTS@}; do
                # One shell alone makes the file.
                if printf '%s\0' "${_cbx_fields[@]}" end 2>/dev/null >"$_cbx_at/$_cbx_name.request"; then
                    _cbx_slot=$_cbx_at/$_cbx_name
                    break
                fi
            done 2>/dev/null
        fi
        if [[ -n $_cbx_slot ]]; then
            {
                printf '%s\n' "$_cbx_name" 1<>"$_cbx_at/requests"
                until IFS=' ' read -r -t 1 _cbx_code _cbx_pieces <&9; do
                    kill -0 @SERVER@ 2>/dev/null || break
                done
                while ((_cbx_piece < ${#_cbx_pieces})); do
                    case ${_cbx_pieces:_cbx_piece:1} in
                        o) IFS= read -r -d '' _cbx_text <"$_cbx_slot.$_cbx_piece"
                            printf %s "$_cbx_text" ;;
                        e) IFS= read -r -d '' _cbx_text <"$_cbx_slot.$_cbx_piece"
                            printf %s "$_cbx_text" >&2 ;;
                        O) command cat "$_cbx_slot.$_cbx_piece" 9>&- ;;
                        E) command cat "$_cbx_slot.$_cbx_piece" >&2 9>&- ;;
                        x) printf 'error: cannot write the answer of a command that ran: no room in %s\n' \
                            "$_cbx_at" >&2 ;;
                    esac || _cbx_failed=1
                    ((_cbx_piece++))
                done
            } 9<>"$_cbx_slot.status"
            if [[ -z $_cbx_code && -e $_cbx_slot.begun ]]; then
                printf 'error: the co-process of cbx ended amid this command\n%s\n' \
                    'hint: look at what it did before you repeat it; cbx works without the hook from here on' >&2
                return 1
            fi
            if [[ -n $_cbx_failed && $_cbx_code == 0 ]]; then
                [[ -p /dev/stdout ]] && return 141
                return 4
            fi
            [[ -n $_cbx_code && $_cbx_code != process ]] && return "$_cbx_code"
        fi
        command cbx "$@"
    }
fi
