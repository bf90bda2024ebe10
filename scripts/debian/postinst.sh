if [ "$1" = configure ]; then
  make_users
  if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # An upgrade: the old one lets grants finish and releases its leases, the new one takes them.
    if [ -n "${2:-}" ]; then systemctl try-restart zit-agent.service; fi
  fi
  if [ -z "${2:-}" ]; then
    echo "zit-agent: configure /etc/zit-agent/agent.env, then: systemctl enable --now zit-agent"
  fi
fi
