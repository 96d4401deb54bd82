package server_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

// keeper is a host that tells of sandboxes: of one, which its removal ends.
type keeper struct {
	*rig
	removing chan struct{} // told when a removal has ended the life
	removed  chan error    // what comes of it
	name     string        // that the last call was about
}

func (k *keeper) ListSandboxes(context.Context, *server.Session) ([]sandbox.Status, error) {
	return []sandbox.Status{{Sandbox: "one", State: sandbox.StateRunning}}, nil
}

func (k *keeper) SandboxStatus(_ context.Context, s *server.Session, name string) (sandbox.Status, error) {
	k.name = name
	return sandbox.Status{Sandbox: name, State: sandbox.StateStopped}, nil
}

func (k *keeper) CreateSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	return k.SandboxStatus(ctx, s, name)
}

func (k *keeper) ExtendSandbox(ctx context.Context, s *server.Session, name string, _ time.Duration) (sandbox.Status, error) {
	return k.SandboxStatus(ctx, s, name)
}

func (k *keeper) PauseSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	return k.SandboxStatus(ctx, s, name)
}

func (k *keeper) ResumeSandbox(ctx context.Context, s *server.Session, name string) (sandbox.Status, error) {
	return k.SandboxStatus(ctx, s, name)
}

func (k *keeper) RemoveSandbox(ctx context.Context, _ *server.Session, _ string, _ bool) error {
	if ctx.Done() != nil {
		return errors.New("this can be cancelled")
	}
	close(k.epoch)
	k.removing <- struct{}{}
	return <-k.removed
}

// startKeeper starts a server whose host tells of sandboxes.
func startKeeper(t *testing.T) *keeper {
	k := &keeper{removing: make(chan struct{}), removed: make(chan error)}
	k.rig = start(t, func(c *server.Config) {
		k.rig = c.Host.(*rig)
		c.Host = k
	})
	return k
}

// TestNoSandboxes: P17.1. Where the host does not tell of sandboxes there are no
// such methods, whatever their params.
func TestNoSandboxes(t *testing.T) {
	r := start(t, nil).login()
	for _, method := range []string{"sandbox_list", "sandbox_info", "sandbox_create", "sandbox_remove", "sandbox_extend", "sandbox_pause", "sandbox_resume"} {
		for _, params := range []string{`{}`, `{"sandbox":7}`} {
			r.expect(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`, "1", -32601, "unknown_method")
		}
	}
}

// TestSandboxParams: what is not a field is refused, and the sandbox is that of
// hello where none is named.
func TestSandboxParams(t *testing.T) {
	k := startKeeper(t)
	r := k.login()
	for _, call := range []string{
		`"sandbox_list","params":{"sandbox":"x"}`,
		`"sandbox_info","params":{"sandbox":null}`,
		`"sandbox_info","params":{"sandbox":""}`,
		`"sandbox_info","params":{"sandbox":"Box"}`,
		`"sandbox_info","params":{"files":true}`,
		`"sandbox_create","params":{"request_key":"0190f3c1-7b1e-7d5a-9c3e-0123456789ab"}`,
		`"sandbox_create","params":{"sandbox":"a","sandbox":"b"}`,
		`"sandbox_remove","params":{"files":1}`,
		`"sandbox_remove","params":{"request_key":"0190f3c1-7b1e-7d5a-9c3e-0123456789ab"}`,
		`"sandbox_extend","params":{}`,
		`"sandbox_extend","params":{"seconds":0}`,
		`"sandbox_extend","params":{"seconds":-1}`,
		`"sandbox_extend","params":{"seconds":"1"}`,
		`"sandbox_extend","params":{"seconds":31622401}`,
	} {
		r.expect(`{"jsonrpc":"2.0","id":1,"method":`+call+`}`, "1", -32602, "invalid_params")
	}
	for _, call := range []string{`"sandbox_info"`, `"sandbox_create","params":{}`, `"sandbox_extend","params":{"seconds":31622400}`} {
		k.name = ""
		if r.expect(`{"jsonrpc":"2.0","id":1,"method":`+call+`}`, "1", 0, ""); k.name != "default" {
			t.Errorf("%s is about %q", call, k.name)
		}
	}
	if p := r.call(`{"jsonrpc":"2.0","id":1,"method":"sandbox_list"}`); p.text(t, "sandboxes") != `[{"sandbox":"one","state":"running"}]` {
		t.Errorf("got %s", p.Result["sandboxes"])
	}
}

// TestRemovesItsOwn: P17.8 and P17.9. The removal of the session's own sandbox
// ends all other calls, is answered by what comes of it, and the connection
// closes behind that. A cancel changes nothing.
func TestRemovesItsOwn(t *testing.T) {
	for name, want := range map[string]error{"well": nil, "badly": &sandbox.Error{Kind: sandbox.KindBusy}} {
		t.Run(name, func(t *testing.T) {
			k := startKeeper(t)
			r := k.login()
			r.send(`{"jsonrpc":"2.0","id":1,"method":"exec","params":{"command":"block"}}`)
			k.await("block")
			r.send(`{"jsonrpc":"2.0","id":2,"method":"sandbox_remove"}`)
			<-k.removing
			if p := r.reply(); string(p.ID) != "1" || p.kind() != "unavailable" || p.Error.Data["reason"] != "sandbox_restarted" {
				t.Fatalf("%+v", p.Error)
			}
			r.send(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":2}}`)
			k.removed <- want
			if p := r.reply(); string(p.ID) != "2" || p.kind() != string(sandbox.KindOf(want)) {
				t.Fatalf("%+v", p.Error)
			}
			r.closed()
		})
	}
}

// TestRemovesItsOwnSession: P17.9, where both planes share the connection.
func TestRemovesItsOwnSession(t *testing.T) {
	k := startKeeper(t)
	_, session := k.loginMux()
	r := k.stream(session)
	r.send(`{"jsonrpc":"2.0","id":2,"method":"sandbox_remove"}`)
	<-k.removing
	time.AfterFunc(2500*time.Millisecond, func() { k.removed <- nil }) // longer than answers are waited for
	if p := r.reply(); string(p.ID) != "2" || p.Error != nil {
		t.Fatalf("%+v", p.Error)
	}
	r.closed()
}
