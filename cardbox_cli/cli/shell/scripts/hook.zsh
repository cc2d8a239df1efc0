# cbx as a function of this shell:  eval "$(cbx shell --hook zsh)"
# Simple commands are answered by one co-process that ends with this shell; all others are processes as ever.
if ((${ZSH_VERSION%%.*}+0 < 5)) || ! zmodload zsh/system zsh/parameter 2>/dev/null; then
    printf 'end\n' 1<>@FOLDER@/requests
    printf 'cbx: no hook: it takes zsh 5 or newer, with its modules, and this is %s; cbx works as before\n' \
        "${ZSH_VERSION:-another shell}" >&2
else
    # Evaluated once more, as by a profile that is sourced again, it ends the co-process of before.
    if [[ -p ${_cbx_requests-} ]]; then
        printf 'end\n' 1<>$_cbx_requests
    fi
    _cbx_requests=@FOLDER@/requests
    printf 'shell %s\n' $$ 1<>@FOLDER@/requests
    function cbx {
        # Where ZERR is trapped, the caller's errexit would be lost with the one in here.
        if [[ -o errexit ]]; then emulate -L zsh -o errexit; else emulate -L zsh; fi
        unsetopt nounset xtrace
        # Left out where nothing can be asked for: its process is gone, or all places are taken.
        local _cbx_at=@FOLDER@ _cbx_slot= _cbx_name= _cbx_number=0 _cbx_code= _cbx_pieces= _cbx_stream=
        local _cbx_read=0 _cbx_failed= _cbx_out= _cbx_err= _cbx_columns=
        local -a _cbx_fields
        if [[ -t 1 ]]; then
            # 0 where it is not known.
            _cbx_out=tty _cbx_columns=${COLUMNS#0}
        fi
        if [[ -t 2 ]]; then _cbx_err=tty; fi
        # Like words of a command, they end where a NUL is.
        _cbx_fields=($# "${(@)argv%%$'\0'*}" "$PWD" "$_cbx_out" "$_cbx_err" "COLUMNS=$_cbx_columns")
        for _cbx_name in ${(M)${(k)parameters[(R)*export*]}:#(CBX_*|PG*|@ALTERNATIVES@)}; do
            _cbx_fields+=("$_cbx_name=${${(P)_cbx_name}%%$'\0'*}")
        done
        # Whoever cleans up old files leaves no FIFO, and to open what is not there would make a file.
        if [[ -z $_CBX_COMPLETE && -p $_cbx_at/requests ]] && builtin kill -0 @SERVER@ 2>/dev/null; then
            for _cbx_name in {1..@SLOTS@}; do
                # One shell alone makes the file.
                if [[ ! -p $_cbx_at/$_cbx_name.status ]]; then continue; fi
                if builtin sysopen -w -o creat,excl -u _cbx_number $_cbx_at/$_cbx_name.request; then
                    if builtin print -rNu $_cbx_number -- "${(@)_cbx_fields}" end; then
                        _cbx_slot=$_cbx_at/$_cbx_name
                    fi
                    exec {_cbx_number}>&-
                    break
                fi
            done 2>/dev/null
        fi
        if [[ -n $_cbx_slot ]]; then
            {
                builtin print $_cbx_name 1<>$_cbx_at/requests || :
                until IFS=' ' builtin read -r -t 1 -u 9 _cbx_code _cbx_pieces; do
                    builtin kill -0 @SERVER@ 2>/dev/null || break
                done
                _cbx_number=0
                for _cbx_name in ${(s::)_cbx_pieces}; do
                    case $_cbx_name in
                        [oc]) _cbx_stream=1 ;;
                        [ef]) _cbx_stream=2 ;;
                        x)
                            builtin print -u 2 \
                                "error: cannot write the answer of a command that ran: no room in $_cbx_at"
                            break
                            ;;
                    esac
                    until builtin sysread -s 65536 -o $_cbx_stream; ((_cbx_read = $?)); do :; done \
                        <$_cbx_slot.$_cbx_number
                    # 5: that was all.
                    if ((_cbx_read != 5)); then _cbx_failed=1; fi
                    ((++_cbx_number))
                done
            } 9<>$_cbx_slot.status
            # It may hold passwords, and nobody is left who empties it.
            if [[ -z $_cbx_code ]]; then : >|$_cbx_slot.request; fi
            if [[ -z $_cbx_code && -e $_cbx_slot.begun ]]; then
                builtin print -u 2 'error: the co-process of cbx ended amid this command'
                builtin print -u 2 \
                    'hint: look at what it did before you repeat it; cbx works without the hook from here on'
                return 1
            fi
            if [[ -n $_cbx_failed && $_cbx_code == 0 ]]; then
                if [[ -p /dev/stdout ]]; then return 141; fi
                builtin print -u 2 'error: cannot write the answer'
                return 4
            fi
            if [[ -n $_cbx_code && $_cbx_code != process ]]; then return $_cbx_code; fi
        fi
        command cbx "$@"
    }
fi
