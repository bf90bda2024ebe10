if [ "$1" = purge ]; then
  # Not /var/lib/zit: the stores.
  rm -rf /var/lib/zit-agent
fi
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
