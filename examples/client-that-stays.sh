#!/bin/sh
# A client for `cbx worker run --serve`, in shell, that needs no model: it says how long the request was.
#
#     cbx worker run --serve 'sh examples/client-that-stays.sh' --drain

echo '{"ready": true}'
while read -r line; do
    case $line in
    '{"cancel"'*) ;;
    *)
        # A request begins with its id: {"id":1,
        id=${line#'{"id":'}
        printf '{"id": %s, "answer": "The request had %s characters."}\n' "${id%%,*}" "${#line}"
        ;;
    esac
done
