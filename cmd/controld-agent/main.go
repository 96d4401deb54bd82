// Command controld-agent is the agent alone, for drivers to put into sandboxes:
// a static binary that knows nothing of the daemon and the client. What it does
// is what `controld agent` does.
//
//	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" ./cmd/controld-agent
package main

import (
	"os"

	"github.com/controld/controld/cmd/internal/agentcmd"
)

// release is set by -ldflags "-X main.release=..." in release builds.
var release = "0.1.0-dev"

func main() { os.Exit(agentcmd.Main("controld-agent", release, os.Args)) }
