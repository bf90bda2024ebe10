// Command guard runs a command under a grant, which keeps the lock itself: guard SOCKET STORE COMMAND…
package main

import (
	"fmt"
	"os"
	"os/exec"

	"polyglot/client"
)

func main() {
	agent, err := client.Connect(os.Args[1])
	if err == nil {
		params := map[string]any{"store": os.Args[2], "wait_ms": 10_000, "pass_lock": true}
		err = agent.Guard(params, func(grant *client.Grant) error {
			command := exec.CommandContext(grant.Context, os.Args[3], os.Args[4:]...)
			command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
			// The first of these is descriptor 3 of the command.
			command.ExtraFiles = []*os.File{grant.Lock}
			command.Env = append(os.Environ(),
				"ZIT_LEASE_STORE="+grant.Store,
				fmt.Sprintf("ZIT_LEASE_EPOCH=%d", grant.Epoch),
				"ZIT_LEASE_TOKEN="+grant.Token,
				"ZIT_LEASE_LOCK_FD=3")
			if err := grant.Verify(); err != nil {
				return err
			}
			return command.Run()
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
}
