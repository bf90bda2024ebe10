# Makes the user that the agent runs as and the group that stores belong to, unless they are there;
# sourced by scripts/install and part of the package's postinst.
make_users() {
  getent group zit >/dev/null || groupadd --system zit
  getent passwd zit-agent >/dev/null ||
    useradd --system --user-group --groups zit --no-create-home --home-dir /nonexistent \
      --shell /usr/sbin/nologin --comment "zit lease agent" zit-agent
  # Stores: whoever is in the group makes them, and what is made there stays the group's.
  [ -d /var/lib/zit ] || install -d -m 2770 -g zit /var/lib/zit
}
