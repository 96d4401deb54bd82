package ground

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"
)

// Bare is a process that does what a daemon does with nothing around it, see
// package bare.
type Bare struct {
	// Addr is where it listens, as host:port.
	Addr  string
	cmd   *exec.Cmd
	stdin io.Closer
}

// StartBare builds and starts one. The caller closes it.
func (g *Ground) StartBare(ctx context.Context) (*Bare, error) {
	path := g.Binary() + "-bare"
	if err := g.build(ctx, "./integration/prove/bare", path); err != nil {
		return nil, err
	}
	b := &Bare{cmd: exec.Command(path)}
	stdin, err := b.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.stdin = stdin
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.Addr = strings.TrimSpace(line)
	return b, nil
}

// Close ends the process and waits for it.
func (b *Bare) Close() error { return errors.Join(b.stdin.Close(), b.cmd.Wait()) }

// Asker asks a bare process over one connection, one call at a time.
type Asker struct {
	net.Conn
	in *bufio.Reader
}

// Asker connects. The caller closes it.
func (b *Bare) Asker(ctx context.Context) (*Asker, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.Addr)
	if err != nil {
		return nil, err
	}
	return &Asker{conn, bufio.NewReader(conn)}, nil
}

// Say begins a call.
func (a *Asker) Say(call string) error {
	_, err := io.WriteString(a, call+"\n")
	return err
}

// answerTime is far more than an answer takes.
const answerTime = time.Minute

// Ask makes a call and waits for its end.
func (a *Asker) Ask(call string) error {
	a.SetDeadline(time.Now().Add(answerTime))
	if err := a.Say(call); err != nil {
		return err
	}
	if line, err := a.in.ReadString('\n'); err != nil || line != "done\n" {
		return fmt.Errorf("the bare process says %q to %q: %w", line, call, err)
	}
	return nil
}
