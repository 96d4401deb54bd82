package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/controld/controld/sandboxhost/daemon"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"controld": main})
}

// TestScripts runs testdata/script: each is a command line session against a
// daemon of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(env *testscript.Env) error {
			env.Setenv("XDG_STATE_HOME", filepath.Join(env.WorkDir, "state"))
			env.Setenv("HOME", env.WorkDir)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"certs":  certs,
			"ready":  ready,
			"signal": sendSignal,
		},
	})
}

// ready waits for the ready file of a daemon that starts in the background and
// sets CONTROLD_ADDR from it.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: ready FILE")
	}
	path := ts.MkAbs(args[0])
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err == nil {
			var r daemon.Ready
			ts.Check(json.Unmarshal(text, &r))
			ts.Setenv("CONTROLD_ADDR", r.Control[0])
			ts.Setenv("ADMIN", r.Admin)
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s never came", path)
		}
	}
}

// sendSignal sends TERM or HUP to the daemon of a ready file.
func sendSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal TERM|HUP FILE")
	}
	var r daemon.Ready
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &r))
	ts.Check(syscall.Kill(r.PID, signals[args[0]]))
}
