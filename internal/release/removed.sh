#!/bin/sh
# Runs when the package has been removed, and at an upgrade, where there is nothing to say.
case ${1:-} in
upgrade | 1) exit 0 ;;
esac
if command -v systemctl >/dev/null; then
	systemctl --global disable rouse.service >/dev/null 2>&1 || true
fi
echo "What Rouse kept for a user stays, in ~/.config/rouse, ~/.local/state/rouse and ~/.cache/rouse."
exit 0
