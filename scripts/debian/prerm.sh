if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now zit-agent.socket zit-agent.service
fi
