package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

const (
	// auditQueue is how many lines wait for the disk before more are lost.
	auditQueue = 8192
	// auditPath is how much of a path is told.
	auditPath = 4096
	// auditPatience is how long the daemon's end waits for the last lines.
	auditPatience = 2 * time.Second
)

var errAuditBehind = errors.New("the disk is too slow for it")

// auditLine is a line of the audit log.
type auditLine struct {
	Time          time.Time `json:"time"`
	Event         string    `json:"event"`
	Tenant        string    `json:"tenant,omitempty"`
	Sandbox       string    `json:"sandbox,omitempty"`
	Who           string    `json:"who,omitempty"`
	Source        string    `json:"source,omitempty"`
	Method        string    `json:"method,omitempty"`
	Path          string    `json:"path,omitempty"`
	CommandSHA256 string    `json:"command_sha256,omitempty"`
	CommandBytes  int       `json:"command_bytes,omitempty"`
	Transfer      string    `json:"transfer,omitempty"`
	Outcome       string    `json:"outcome"`
	Bytes         int64     `json:"bytes"`
	Seconds       float64   `json:"duration_s"`
}

// auditLog writes lines to a file in a goroutine of its own, so that a slow or
// full disk holds up no call: lines that find no room are lost, and counted.
type auditLog struct {
	path   string
	warn   func(error) // told of the first line that was lost, and of files that do not open
	first  sync.Once
	lines  chan auditLine
	reopen chan struct{}
	lost   atomic.Uint64
	file   atomic.Pointer[os.File]
	all    sync.WaitGroup
}

// openAudit opens the log of a configuration; nil where there is none.
func openAudit(path string, warn func(error)) (*auditLog, error) {
	if path == "" {
		return nil, nil
	}
	a := &auditLog{path: path, warn: warn, lines: make(chan auditLine, auditQueue), reopen: make(chan struct{}, 1)}
	f, err := a.open()
	if err != nil {
		return nil, fmt.Errorf("audit-log: %w", err)
	}
	a.file.Store(f)
	a.all.Go(a.run)
	return a, nil
}

func (a *auditLog) open() (*os.File, error) {
	f, err := os.OpenFile(a.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// tell queues a line. It never waits.
func (a *auditLog) tell(d server.Deed) {
	path := d.Path
	if len(path) > auditPath {
		path = path[:auditPath]
	}
	outcome := string(d.Outcome)
	if outcome == "" {
		outcome = "ok"
	}
	line := auditLine{
		Time: time.Now().UTC(), Event: d.Event, Tenant: d.Tenant, Sandbox: d.Sandbox, Who: d.Who, Source: d.Source,
		Method: d.Method, Path: path, CommandSHA256: d.CommandSHA256, CommandBytes: d.CommandBytes,
		Transfer: d.Transfer, Outcome: outcome, Bytes: d.Bytes, Seconds: d.Took.Seconds(),
	}
	select {
	case a.lines <- line:
	default:
		a.lose(errAuditBehind)
	}
}

// lose counts a line that the log will lack.
func (a *auditLog) lose(err error) {
	a.lost.Add(1)
	a.first.Do(func() { a.warn(err) })
}

// tellTransfer queues a line of a transfer that has ended.
func (a *auditLog) tellTransfer(r transfer.Report) {
	method := rpc.MethodReadFileStream
	if r.Direction == transfer.Write {
		method = rpc.MethodWriteFileStream
	}
	a.tell(server.Deed{
		Event: "transfer", Tenant: r.Owner.Tenant, Sandbox: r.Owner.Sandbox, Who: r.Owner.Who, Source: r.Owner.Source,
		Method: method, Path: r.Owner.Path, Transfer: r.ID, Outcome: sandbox.KindOf(r.Err), Bytes: r.Bytes, Took: r.Took,
	})
}

// run writes what is queued until the queue is closed, each line in one write.
func (a *auditLog) run() {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	for {
		select {
		case line, more := <-a.lines:
			if !more {
				a.file.Load().Close()
				return
			}
			enc.Encode(line) // of strings and numbers
			a.write(&text)
		case <-a.reopen:
			a.replace()
		}
	}
}

// write writes a line. What is left of one that was torn goes before the next:
// its end alone, so that no line is joined to another.
func (a *auditLog) write(text *bytes.Buffer) {
	n, err := a.file.Load().Write(text.Bytes())
	torn := n > 0 && n < text.Len()
	text.Reset()
	if err != nil {
		a.lose(err)
	}
	if torn {
		text.WriteByte('\n')
	}
}

// replace goes on in a new file of that name, which somebody may have moved
// away; where there is none to be had, in the old one.
func (a *auditLog) replace() {
	f, err := a.open()
	if err != nil {
		a.warn(err)
		return
	}
	a.file.Swap(f).Close()
}

// again has the log opened anew.
func (a *auditLog) again() {
	select {
	case a.reopen <- struct{}{}:
	default:
	}
}

// close writes what is queued and waits for it, but not for ever. Nothing may
// be told any more.
func (a *auditLog) close() {
	a.file.Load().SetWriteDeadline(time.Now().Add(auditPatience)) // of a pipe; a disk has none
	close(a.lines)
	a.all.Wait()
}
