#!/bin/bash
# Runs in a booted systemd, as root: the package's whole life. A line a check; the last one counts.
set -u
here=$1
passed=0 failed=0
note() { printf '%s\n' "$*"; }
check() { # check NAME COMMAND…
  local name=$1
  shift
  if "$@"; then passed=$((passed + 1)) && note "ok    $name"
  else failed=$((failed + 1)) && note "FAIL  $name"; fi
}
now_ms() { date +%s%3N; }
prop() { systemctl show -p "$1" --value zit-agent.service; }
# until SECONDS COMMAND…: waits until it succeeds.
until_ok() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS > end)) && return 1
    sleep 0.02
  done
}
logged() { journalctl -q -u zit-agent -o cat --since "@$since" | grep -q -- "$1"; }
mark() { journalctl --sync; since=$(date +%s.%6N); }
as_forge() { runuser -u forge -- env ZIT_AGENT_SOCKET=/run/zit-agent/agent.sock "$@"; }
restarts_since() { (($(prop NRestarts) > $1)); }
is() { [ "$1" = "$2" ]; }

verified() {
  ! systemd-analyze verify --man=no zit-agent.service zit-agent.socket 2>&1 | grep .
}

mkdir -p /etc/credstore
install -m 755 "$here/nats-server" /usr/local/bin/nats-server
systemd-run -q --unit=nats nats-server -c "$here/nats.conf"
mark

check "the package installs, in an older version" dpkg -i "$here/older.deb"
check "its program was not stripped" is "$(agent --version)" 0.0.1
check "user, group and store directory are made" test "$(stat -c %U:%G:%a /var/lib/zit)" = root:zit:2770
check "systemd finds no fault in the units" verified
check "nothing runs before it is configured" is "$(systemctl is-active zit-agent)" inactive

useradd -m -G zit forge
runuser -u forge -- sh -c 'umask 007; mkdir /var/lib/zit/demo'
cat >>/etc/zit-agent/agent.env <<ENV
ZIT_AGENT_NODE=booted
ZIT_AGENT_NATS=nats://127.0.0.1:4222
ZIT_AGENT_STORES=/etc/zit-agent/stores
BUN_BE_BUN=1
NODE_TLS_REJECT_UNAUTHORIZED=0
ENV
echo demo >/etc/zit-agent/stores
install -m 400 "$here/agent.creds" /etc/credstore/zit-agent.creds
check "it starts, ready" systemctl enable -q --now zit-agent
check "with the credentials of /etc/credstore" until_ok 10 agent --check
check "it holds its pinned store" until_ok 10 agent held demo
check "the status line tells it" until_ok 10 sh -c 'systemctl show -p StatusText zit-agent | grep -q "1 held.*coordinator nats://"'
pid=$(prop MainPID)
check "it has no capabilities, and seccomp" grep -qzP '(?s)CapEff:\t0+\n.*Seccomp:\t2' "/proc/$pid/status"
check "Bun's variables do not reach it" sh -c "! tr '\\0' '\\n' <'/proc/$pid/environ' | grep -qE '^(BUN|NODE)_'"
check "a member of the group guards a write" as_forge agent guard demo -- true
check "the lock file is the agent's and the group's" is "$(stat -c %U:%G:%a /var/lib/zit/demo/lease.lock)" zit-agent:zit:640
check "others may not connect" sh -c '! runuser -u nobody -- agent --socket /run/zit-agent/agent.sock status 2>/dev/null'
check "only administrators step down" sh -c '! runuser -u forge -- agent --socket /run/zit-agent/agent.sock stepdown demo 2>/dev/null'

# upgrade, with a write under way
epoch() { agent holder demo --json | sed 's/.*"epoch":\([0-9]*\).*/\1/'; }
before=$(epoch)
as_forge agent guard demo -- sh -c 'touch /tmp/upgrading; sleep 3; echo whole >/tmp/upgraded' &
guard=$!
until_ok 10 test -e /tmp/upgrading; mark; start=$(now_ms)
check "a newer version installs over it" dpkg -i --force-confdef --force-confold "$here/zit-agent.deb"
note "      took $(($(now_ms) - start)) ms, with a write of 3 s under way"
check "and waits for the write that is under way" is "$(cat /tmp/upgraded 2>/dev/null)" whole
check "whose guard succeeds" wait "$guard"
check "the old one released its leases" logged '"event":"drained".*"remaining":0'
check "the new one runs" sh -c "agent status --json | grep -qF '\"version\":\"$(agent --version)\"'"
check "which is another program" sh -c "! agent status --json | grep -qF '\"version\":\"0.0.1\"'"
check "not from a deleted file" is "$(readlink "/proc/$(prop MainPID)/exe")" /usr/bin/agent
check "it has the leases again" until_ok 10 agent held demo
check "and grants, with no grace" as_forge agent guard demo -- true
check "in a tenure of its own" test "$(epoch)" -gt "$before"
check "changed settings stay" grep -q '^ZIT_AGENT_NODE=booted' /etc/zit-agent/agent.env
check "with the new ones beside them" grep -q '^# The flags of' /etc/zit-agent/agent.env.dpkg-dist
check "unchanged ones are replaced" grep -q '^# Clients without' /etc/profile.d/zit-agent.sh

# journald
check "journal lines carry no time of their own" sh -c "! journalctl -q -u zit-agent -o cat | grep '\"event\"' | grep -q '\"time\"'"
check "and their level as priority" sh -c "journalctl -q -u zit-agent -p info -o cat | grep -q '\"event\":\"ready\"'"
check "and no credentials" sh -c "! journalctl -q -o cat | grep -qF \"\$(sed -n 2p '$here/agent.creds' | cut -c 1-60)\""

# crash
n=$(prop NRestarts) start=$(now_ms)
kill -KILL "$(prop MainPID)"
check "killed, it is started again" until_ok 20 restarts_since "$n"
check "and grants again, with no grace" until_ok 10 as_forge agent guard demo -- true
note "      granted $(($(now_ms) - start)) ms after the kill"
check "history tells of the restart" sh -c 'agent history demo | sed -n 2p | grep -q "holds it now  *restart"'
mark; n=$(prop NRestarts)
kill -STOP "$(prop MainPID)"
check "hung, the watchdog ends and starts it" until_ok 30 restarts_since "$n"
check "as a watchdog's end" sh -c "journalctl -q -u zit-agent --since @$since | grep -qi watchdog"
check "and it grants again" until_ok 10 as_forge agent guard demo -- true

# reload
mark; echo 'not//a store' >/etc/zit-agent/stores
check "reload with a bad file" systemctl reload zit-agent
check "keeps the old and says so" until_ok 10 logged reload_failed
check "and goes on" agent held demo
mark; printf 'demo\nextra\n' >/etc/zit-agent/stores
systemctl reload zit-agent
check "reload takes a good file" until_ok 10 agent held extra
check "and is active, not reloading" until_ok 10 is "$(systemctl is-active zit-agent)" active

# load
as_forge sh -c 'ok=0; while [ ! -e /tmp/enough ]; do agent guard demo --wait 5s -- true 2>/dev/null && ok=$((ok + 1)); done; echo $ok >/tmp/guards' &
load=$!
sleep 1; mark; start=$(now_ms)
check "restart under load" systemctl restart zit-agent
note "      took $(($(now_ms) - start)) ms"
check "a clean stop released the leases" logged '"event":"drained".*"remaining":0'
check "writes go on" until_ok 10 as_forge agent guard demo --wait 5s -- true
touch /tmp/enough; wait "$load"
note "      $(cat /tmp/guards) guarded writes around it"

# a long write at the stop
mkdir -p /run/systemd/system/zit-agent.service.d
printf '[Service]\nTimeoutStopSec=1s\n' >/run/systemd/system/zit-agent.service.d/short.conf
systemctl daemon-reload; mark
as_forge agent guard demo -- sh -c 'touch /tmp/writing; sleep 4; echo whole >/tmp/written' &
guard=$!
until_ok 10 test -e /tmp/writing; start=$(now_ms)
systemctl stop zit-agent
note "      stop took $(($(now_ms) - start)) ms, for a write of 4 s, with TimeoutStopSec=1s"
check "a write under way finishes before the stop" is "$(cat /tmp/written 2>/dev/null)" whole
check "and its guard succeeds" wait "$guard"
check "systemd did not kill it" is "$(prop Result)" success
rm -r /run/systemd/system/zit-agent.service.d; systemctl daemon-reload

# socket activation
check "the socket unit starts" systemctl start zit-agent.socket
check "and the service is not yet" is "$(systemctl is-active zit-agent.service)" inactive
check "a caller starts it, and waits" as_forge agent guard demo --wait 10s -- true
mark; inode=$(stat -c %i /run/zit-agent/agent.sock); systemctl restart zit-agent.service
check "the same socket through a restart" is "$(stat -c %i /run/zit-agent/agent.sock)" "$inode"
check "handed over by systemd" logged 'descriptor 3'
systemctl stop zit-agent.socket zit-agent.service

# refused credentials, a coordinator that is away
install -m 400 "$here/stranger.creds" /etc/credstore/zit-agent.creds
start=$(now_ms)
check "ready although the coordinator refuses it" systemctl start zit-agent
note "      after $(($(now_ms) - start)) ms"
check "unhealthy, and says why" sh -c 'agent --check | grep -q "refuses our credentials"'
install -m 400 "$here/agent.creds" /etc/credstore/zit-agent.creds
check "a restart takes the new credentials" sh -c 'systemctl restart zit-agent && agent --check'

# a setup that is contradicted is tried again, but not ten times a second
systemctl stop zit-agent; echo ZIT_AGENT_TTL=20s >>/etc/zit-agent/agent.env; mark
systemctl start zit-agent 2>/dev/null
n=$(prop NRestarts); sleep 3
check "a contradicted setup waits before it is tried again" test "$(($(prop NRestarts) - n))" -le 1
check "and says why" logged '"event":"failed".*TTL of 15s.*"exit":78'
sed -i '/_TTL=/d' /etc/zit-agent/agent.env
check "put right, it starts by itself" until_ok 20 agent --check

# wrong flags are not tried for ever
systemctl stop zit-agent; sed -i '/_NATS=/d' /etc/zit-agent/agent.env
systemctl start zit-agent 2>/dev/null
check "wrong flags end in failed, at once" is "$(systemctl is-active zit-agent) $(prop ExecMainStatus) $(prop NRestarts)" "failed 64 0"

check "the package is removed" dpkg -r zit-agent
check "with its program and units" sh -c '! command -v agent && ! systemctl cat zit-agent.service 2>/dev/null'
check "its settings stay until it is purged" test -e /etc/zit-agent/agent.env
check "and so does what it remembers" test -d /var/lib/zit-agent
# The manual, pasted, in a checkout with credentials in it
mkdir -p /tmp/checkout/{scripts,dist,bin}
cd /tmp/checkout || exit 1
sed -i '/^BUN\|^NODE/d' /etc/zit-agent/agent.env
cp "$here/agent.creds" .
printf '#!/bin/sh\ncp %s/zit-agent.deb dist/zit-agent_0_all.deb\n' "$here" >scripts/deb
printf '#!/bin/sh\nexec "$@"\n' >bin/sudo
printf '#!/bin/sh\necho ZIT_AGENT_NATS=nats://127.0.0.1:4222 >>"$1"\n' >bin/sudoedit
chmod +x scripts/* bin/*
pasted() { PATH=$PWD/bin:$PATH bash -ex "$here/manual.$1"; }
check "the manual's installation, with the settings there were" pasted 1
check "has the administrator's changes" grep -q '^ZIT_AGENT_NODE=booted' /etc/zit-agent/agent.env
check "the manual shows the settings, and where they are from" bash -c "$(declare -f pasted); here=$here; pasted 2 | grep -E '^node +booted +ZIT_AGENT_NODE$'"
check "it holds a store again" until_ok 10 agent held demo
mark; check "the manual's drain" pasted 3
check "stops it" is "$(systemctl is-active zit-agent)" inactive
check "which released all" logged '"event":"released","store":"demo".*"clean":true'
cd /
rm /etc/zit-agent/stores
check "purged" dpkg -P zit-agent
check "nothing of it is left" sh -c '! ls -d /etc/zit-agent /etc/profile.d/zit-agent.sh /var/lib/zit-agent /usr/share/doc/zit-agent 2>/dev/null'
check "and no link to its units" sh -c '! find /etc/systemd /run/systemd -name "zit-agent*" | grep .'
check "stores are never touched" test -e /var/lib/zit/demo/lease.lock

# The same without a package, out of the checkout
check "scripts/install puts it in place" /checkout/scripts/install
check "its units have no fault" verified
sed -i 's/^#*ZIT_AGENT_STANDALONE=.*/ZIT_AGENT_STANDALONE="a test of it"/' /etc/zit-agent/agent.env
check "it starts" systemctl enable -q --now zit-agent.service
check "as installed" is "$(readlink "/proc/$(prop MainPID)/exe")" /usr/local/bin/agent
check "and guards, unguarded by a coordinator" sh -c 'runuser -u forge -- env ZIT_AGENT_SOCKET=/run/zit-agent/agent.sock agent guard demo -- true 2>&1 | grep -q "a test of it"'
check "it is not taken away while it runs" sh -c '! /checkout/scripts/install --uninstall 2>/dev/null'
systemctl disable -q --now zit-agent.service
check "then it is" /checkout/scripts/install --uninstall
check "with program and units" sh -c '! command -v agent && ! systemctl cat zit-agent.service 2>/dev/null'
note "passed=$passed failed=$failed"
