package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
)

// TestAdapterOverRestart: P14.14. What ran when the daemon was killed is of
// unknown outcome, and is not run by the next one.
func TestAdapterOverRestart(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	sb, err := adapter.New(adapter.Options{Control: d.ready.Control[0], Token: p.secret, RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	failed := make(chan error, 1)
	go func() {
		_, err := sb.Exec(t.Context(), "echo run >> log; sleep 300", sandbox.ExecOptions{})
		failed <- err
	}()
	log := filepath.Join(p.cwd(), "log")
	await(t, "the command", func() bool { b, _ := os.ReadFile(log); return len(b) > 0 })
	d.kill(t, syscall.SIGKILL)
	<-d.exited
	p.start(t, "--control", d.ready.Control[0])
	if e := wantKind(t, <-failed, sandbox.KindOutcomeUnknown); e.Reason != sandbox.ReasonRequestKey {
		t.Errorf("%+v", e)
	}
	if b, err := os.ReadFile(log); err != nil || string(b) != "run\n" {
		t.Errorf("ran %q, %v", b, err)
	}
}

// TestKilledDaemonsRunNothingTwice kills one daemon after another under
// commands that append lines, and under writes: what is said of each is true.
func TestKilledDaemonsRunNothingTwice(t *testing.T) {
	p := newPlace(t)
	d := p.start(t)
	url := d.ready.Control[0]
	over := make(chan struct{})
	said := make([]map[string]error, 4)
	var lanes sync.WaitGroup
	for lane := range said {
		said[lane] = map[string]error{}
		sb, err := adapter.New(adapter.Options{Control: url, Token: p.secret, RetryFor: patience})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sb.Close() })
		lanes.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				id := fmt.Sprintf("%d.%d", lane, n)
				_, said[lane][id] = sb.Exec(t.Context(), "echo "+id+" >> log", sandbox.ExecOptions{})
			}
		})
	}
	for n := range 5 {
		time.Sleep(time.Duration(20+37*n) * time.Millisecond) // anywhere in what they do
		d.kill(t, syscall.SIGKILL)
		<-d.exited
		d = p.start(t, "--control", url)
	}
	close(over)
	lanes.Wait()
	text, err := os.ReadFile(filepath.Join(p.cwd(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.FieldsSeq(string(text)) {
		times[line]++
	}
	ok, unknown := 0, 0
	for _, lane := range said {
		for id, err := range lane {
			e := sandbox.AsError("", "", err)
			switch {
			case e == nil:
				ok++
			case e.Outcome == sandbox.OutcomeUnknown:
				unknown++
			}
			if n := times[id]; n > 1 || e == nil && n != 1 || e != nil && e.Outcome == sandbox.OutcomeNone && n > 0 {
				t.Errorf("%s ran %d times: %v", id, n, err)
			}
		}
	}
	if t.Logf("%d succeeded, %d unknown", ok, unknown); ok == 0 {
		t.Error("nothing ran between the kills")
	}
}
