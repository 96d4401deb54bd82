package server

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// Deed is one thing that somebody did, for an audit log. It holds no content,
// no secret and no text of a command.
type Deed struct {
	// Event is "hello", "call" or "transfer", its end.
	Event string
	// Tenant and Sandbox are whose it is, or which sandbox it was done to, Who names the token or certificate,
	// Source where the connection came from.
	Tenant, Sandbox, Who, Source string
	Method, Path                 string
	// CommandSHA256 begins the hash of an exec's command, which is
	// CommandBytes long.
	CommandSHA256 string
	CommandBytes  int
	// Transfer is the id of the transfer that ended or was minted.
	Transfer string
	// Outcome is the kind of the error, empty where there was none.
	Outcome sandbox.Kind
	// Bytes are those of the content that was moved.
	Bytes int64
	Took  time.Duration
}

// auditHello tells of a hello that the host has judged.
func (c *conn) auditHello(p *rpc.HelloParams, session *Session, err error) {
	if c.s.cfg.Audit == nil {
		return
	}
	d := Deed{Event: "hello", Sandbox: p.Sandbox, Source: c.guest.Source.String(), Method: rpc.MethodHello, Outcome: sandbox.KindOf(err)}
	if session != nil {
		d.Tenant, d.Who = session.Tenant, session.Who
	}
	c.s.cfg.Audit(d)
}

// audit tells of a call that ran; what became of a transfer is told at its end.
func (cl *call) audit(result rpc.Result, err error) {
	tell := cl.c.s.cfg.Audit
	if tell == nil || isTransferCall(cl.r.Method) {
		return
	}
	s := cl.c.peer.session
	d := Deed{
		Event: "call", Tenant: s.Tenant, Sandbox: s.Sandbox, Who: s.Who, Source: cl.c.guest.Source.String(),
		Method: cl.r.Method, Path: pathOf(cl.r.Params), Outcome: sandbox.KindOf(err), Took: time.Since(cl.began),
	}
	if sandboxCall(cl.r.Method) {
		d.Sandbox = cl.sandboxNamed()
	}
	if p, ok := cl.r.Params.(*rpc.ExecParams); ok {
		sum := sha256.Sum256([]byte(p.Command))
		d.CommandSHA256, d.CommandBytes = hex.EncodeToString(sum[:8]), len(p.Command)
	}
	switch r := result.(type) {
	case *rpc.ReadResult:
		d.Bytes = int64(len(r.File.Data))
		if r.Transfer != nil {
			d.Transfer = r.Transfer.ID
		}
	case *rpc.WriteResult:
		d.Bytes = r.Info.Bytes
	case *rpc.StreamResult:
		d.Transfer = r.Transfer.ID
	case *rpc.ExecResult:
		d.Bytes = int64(len(r.Shell.Stdout) + len(r.Shell.Stderr))
	}
	tell(d)
}
