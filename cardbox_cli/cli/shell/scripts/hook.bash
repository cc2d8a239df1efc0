# cbx as a function of this shell:  eval "$(cbx shell --hook bash)"
# Simple commands are answered by one co-process that ends with this shell; all others are processes as ever.
if ((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 404)); then
    \builtin printf 'end\n' 1<>@FOLDER@/requests
    printf 'cbx: no hook: it takes bash 4.4 or newer, and this is %s; cbx works as before\n' "${BASH_VERSION:-another shell}" >&2
else
    # Evaluated once more, as by a profile that is sourced again, it ends the co-process of before.
    if [[ -p ${_cbx_requests-} ]]; then
        \builtin printf 'end\n' 1<>"$_cbx_requests"
    fi
    _cbx_requests=@FOLDER@/requests
    \builtin printf 'shell %s\n' $$ 1<>@FOLDER@/requests
    function cbx {
        local -
        set +euxk -C
        # Left out where nothing can be asked for: its process is gone, or all places are taken.
        local _cbx_at=@FOLDER@ _cbx_slot= _cbx_name= _cbx_code= _cbx_line= _cbx_pieces= _cbx_text= _cbx_piece=0
        local _cbx_failed= _cbx_fork= _cbx_out= _cbx_err= _cbx_columns=
        [[ -t 1 ]] && _cbx_out=tty
        [[ -t 2 ]] && _cbx_err=tty
        [[ -n $_cbx_out || ${COLUMNS@a} == *x* ]] && _cbx_columns=${COLUMNS-}
        local -a _cbx_fields=("$#" "$@" "$PWD" "$_cbx_out" "$_cbx_err" "COLUMNS=$_cbx_columns")
        for _cbx_name in "${!CBX_@}" "${!PG@}" @VARIABLES@; do
            [[ ${!_cbx_name@a} == *x* ]] && _cbx_fields+=("$_cbx_name=${!_cbx_name}")
        done
        # Whoever cleans up old files leaves no FIFO, and to open what is not there would make a file.
        if [[ -z ${_CBX_COMPLETE-} && -p $_cbx_at/requests ]] && \builtin kill -0 @SERVER@ 2>/dev/null; then
            for ((_cbx_name = 1; _cbx_name <= @SLOTS@; _cbx_name += 1)); do
                # One shell alone makes the file.
                if [[ -p $_cbx_at/$_cbx_name.status ]] &&
                    \builtin printf '%s\0' "${_cbx_fields[@]}" end >"$_cbx_at/$_cbx_name.request"; then
                    _cbx_slot=$_cbx_at/$_cbx_name
                    break
                fi
            done 2>/dev/null
        fi
        if [[ -n $_cbx_slot ]]; then
            # What nobody reads any more kills who writes it, which must not be the shell itself.
            [[ $BASHPID == "$$" && (-p /dev/stdout || -S /dev/stdout || -p /dev/stderr || -S /dev/stderr) ]] &&
                _cbx_fork=+
            {
                \builtin printf '%s\n' "$_cbx_name" 1<>"$_cbx_at/requests"
                # Elsewhere a read goes on after a trapped signal.
                set -o posix
                while [[ -z $_cbx_code ]]; do
                    # What had come when the time was over is in the variable, and read.
                    if IFS= \builtin read -r -t 1 _cbx_text <&9; then
                        _cbx_line+=$_cbx_text
                        _cbx_code=${_cbx_line%% *}
                        _cbx_pieces=${_cbx_line#"$_cbx_code"}
                        _cbx_pieces=${_cbx_pieces# }
                    elif (($? == 130)); then
                        _cbx_code=130
                        \builtin printf '\ninterrupted\n' >&2
                    else
                        _cbx_line+=$_cbx_text
                        \builtin kill -0 @SERVER@ 2>/dev/null || break
                    fi
                done
                set +o posix
                while ((_cbx_piece < ${#_cbx_pieces})); do
                    case $_cbx_fork${_cbx_pieces:_cbx_piece:1} in
                        o) IFS= \builtin read -r -d '' _cbx_text <"$_cbx_slot.$_cbx_piece"
                            \builtin printf %s "$_cbx_text" ;;
                        e) IFS= \builtin read -r -d '' _cbx_text <"$_cbx_slot.$_cbx_piece"
                            \builtin printf %s "$_cbx_text" >&2 ;;
                        c | +[oc]) \command cat "$_cbx_slot.$_cbx_piece" 9>&- ;;
                        f | +[ef]) \command cat "$_cbx_slot.$_cbx_piece" >&2 9>&- ;;
                        *x) \builtin printf 'error: cannot write the answer of a command that ran: no room in %s\n' \
                            "$_cbx_at" >&2 ;;
                    esac || _cbx_failed=1
                    ((_cbx_piece += 1))
                done
            } 9<>"$_cbx_slot.status"
            # It may hold passwords, and nobody is left who empties it.
            [[ -z $_cbx_code ]] && : >|"$_cbx_slot.request"
            if [[ -z $_cbx_code && -e $_cbx_slot.begun ]]; then
                \builtin printf 'error: the co-process of cbx ended amid this command\n%s\n' \
                    'hint: look at what it did before you repeat it; cbx works without the hook from here on' >&2
                return 1
            fi
            if [[ -n $_cbx_failed && $_cbx_code == 0 ]]; then
                [[ -p /dev/stdout ]] && return 141
                return 4
            fi
            [[ -n $_cbx_code && $_cbx_code != process ]] && return "$_cbx_code"
        fi
        \command cbx "$@"
    }
fi
