// Command fault is an agent that uses a nil pointer as soon as it listens, for
// the tests of what it says then.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/controld/controld/sandbox/local"
	"github.com/controld/controld/sandboxhost/agent"
)

func main() {
	var nobody *local.User
	a := agent.Agent{Listen: "unix://" + os.Args[1], Cwd: "/", User: &local.User{UID: 1000, GID: 1000},
		Ready: func(string) { nobody.UID++ }}
	fmt.Fprintln(os.Stderr, a.Run(context.Background()))
}
