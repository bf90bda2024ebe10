# Clients without root look for an agent of their own user, unless they are told of the system's.
if [ -z "${ZIT_AGENT_SOCKET:-}" ] && [ -S /run/zit-agent/agent.sock ]; then
  export ZIT_AGENT_SOCKET=/run/zit-agent/agent.sock
fi
