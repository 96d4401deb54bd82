// Command runtime-demo is an agent runtime in small: a turn loop that takes
// tool calls from a script or a model and runs them in a sandbox, through the
// one interface. Where the sandbox is, -backend says; the transcript is the
// same on all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/cmd/internal/agentcmd"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == agentWord {
		os.Exit(agentcmd.Main("runtime-demo "+agentWord, "demo", append(os.Args[:1:1], os.Args[2:]...)))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// agentWord is the argument with which this program is the agent of a sandbox.
const agentWord = "__agent"

// options are the command's flags.
type options struct {
	backend, input, script, model, modelName, prompt string
	minStream                                        int64
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("runtime-demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.backend, "backend", embeddedTier, "local; embedded (a daemon in this process), or its driver: "+strings.Join(daemon.DriverNames(), ", ")+"; or the control URL of a daemon (token: CONTROLD_TOKEN)")
	fs.StringVar(&o.input, "input", "", "file or directory to work on (default: the Go toolchain's source tree)")
	fs.StringVar(&o.script, "script", "", "JSON file of turns instead of the built-in scenario")
	fs.StringVar(&o.model, "model", "", "base URL of OpenAI-compatible chat completions instead of a script (key: OPENAI_API_KEY)")
	fs.StringVar(&o.modelName, "model-name", "default", "name of the model")
	fs.StringVar(&o.prompt, "prompt", "Find out what is in input.tar and write a short report to report.txt.", "task for the model")
	fs.Int64Var(&o.minStream, "stream", 2<<30, "stream at least so many bytes in and out")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, nil
}

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(stderr, "runtime-demo: %v\n", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, o, stdout, stderr); err != nil {
		fmt.Fprintf(stderr, "runtime-demo: %v\n", err)
		return 1
	}
	return 0
}

// demo runs one session from the input to the summary.
func demo(ctx context.Context, o options, stdout, stderr io.Writer) error {
	start := time.Now()
	pack, err := openInput(o.input)
	if err != nil {
		return fmt.Errorf("input: %w", err)
	}
	defer pack.Close()
	resolver := newResolver(o.backend, stderr)
	defer resolver.Close()
	api, err := resolver.Resolve(ctx, demoTenant)
	if err != nil {
		return fmt.Errorf("backend %s: %w", o.backend, err)
	}
	env := sandbox.NewSessionEnv(api, "sessions", "runtime demo")
	source, err := o.source(pack, o.minStream)
	if err != nil {
		return err
	}
	tools := &toolbox{env: env, pack: pack, bars: stderr, minStream: o.minStream}
	log := &transcript{w: stdout}
	if err := loop(ctx, source, tools, log); err != nil {
		return err
	}
	defer env.Rm(context.WithoutCancel(ctx), env.Cwd(), sandbox.RmOptions{Recursive: true, Force: true})
	return summarise(ctx, stdout, env, tools, time.Since(start))
}

func (o options) source(pack *input, minStream int64) (source, error) {
	switch {
	case o.model != "":
		return newModel(o.model, o.modelName, os.Getenv("OPENAI_API_KEY"), o.prompt), nil
	case o.script != "":
		return loadScript(o.script)
	}
	return scenario(), nil
}
