# Completion of cbx in fish:  cbx completion fish > ~/.config/fish/completions/cbx.fish
function __cbx_complete
    set -l program (commandline -opc | string match --invert --regex '^\w+=')[1]
    set -l line (commandline -cp | string collect)
    for row in (env _CBX_COMPLETE=fish _CBX_LINE="$line" $program 2>/dev/null)
        set -l parts (string split --max 2 \t -- $row)
        switch $parts[1]
            case plain
                printf '%s\t%s\n' $parts[2] $parts[3]
            case file
                __fish_complete_path (commandline -ct)
        end
    end
end
complete --command cbx --no-files --keep-order --arguments '(__cbx_complete)'
