//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// deadPeer has a client in a network of its own do all that holds something
// at the daemon, cuts the wire between the two without a word, and says how
// long each side took to notice.
func deadPeer(ctx context.Context, _ []string) error {
	client, said, err := startPeer()
	if err != nil {
		return err
	}
	defer client.Process.Kill()
	if err := shell("ip link add v0 type veth && ip link set veth0 netns $1 && ip addr add 10.0.0.1/24 dev v0 && ip link set v0 up",
		fmt.Sprint(client.Process.Pid)); err != nil {
		return err
	}
	d, err := serveOn(ctx, "10.0.0.1", func(c *daemon.Config) { c.Insecure, c.ReconnectGrace = true, time.Second })
	if err != nil {
		return err
	}
	defer d.stop()
	fmt.Fprintln(client.in, d.control, d.secret)
	if word := <-said; word != "busy" {
		return fmt.Errorf("the client said %q", word)
	}
	if n := held(); n < 4 {
		return fmt.Errorf("the client holds %d things at the daemon", n)
	}
	if err := shell("ip link set v0 down"); err != nil {
		return err
	}
	return tellWhoNotices(said)
}

// tellWhoNotices waits for both sides.
func tellWhoNotices(said <-chan string) error {
	cut := time.Now()
	clientsTurn := said
	for daemonsTurn := true; daemonsTurn || clientsTurn != nil; {
		select {
		case word := <-clientsTurn:
			say("client", word, time.Since(cut).Milliseconds())
			clientsTurn = nil
		case <-time.After(50 * time.Millisecond):
		}
		if daemonsTurn && held() == 0 {
			say("daemon", "free", time.Since(cut).Milliseconds())
			daemonsTurn = false
		}
		if time.Since(cut) > 3*time.Minute {
			return errors.New("nobody notices")
		}
	}
	return nil
}

// held counts what the client holds at the daemon: connections that stand and
// commands that run.
func held() (n int) {
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) {
		// local address and state, see Documentation/networking/proc_net_tcp.rst
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[1], "0100000A:") && f[3] == "01" {
			n++
		}
	}
	return n + sleepers()
}

// sleepers counts commands that sleep.
func sleepers() (n int) {
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		words, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if strings.HasPrefix(string(words), "sleep\x001000\x00") {
			n++
		}
	}
	return n
}

func shell(script string, args ...string) error {
	out, err := exec.Command("sh", append([]string{"-ec", script, "sh"}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, out)
	}
	return nil
}

// peerProcess is the client, with a line to talk to it.
type peerProcess struct {
	*exec.Cmd
	in io.Writer
}

// startPeer starts this program again, as a client in a network of its own.
func startPeer() (*peerProcess, <-chan string, error) {
	p := &peerProcess{Cmd: exec.Command("/proc/self/exe")}
	p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		return nil, nil, err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.Start(); err != nil {
		return nil, nil, err
	}
	said := make(chan string)
	go func() {
		defer close(said)
		for in := bufio.NewScanner(out); in.Scan(); {
			said <- in.Text()
		}
	}()
	return p, said, nil
}

// peer is the client: it waits for its wire, holds a connection that is idle,
// a command, an upload and a download, and says what they end with.
func peer(ctx context.Context) error {
	var control, secret string
	if _, err := fmt.Scan(&control, &secret); err != nil {
		return err
	}
	if err := shell("ip addr add 10.0.0.2/24 dev veth0 && ip link set veth0 up && ip link set lo up"); err != nil {
		return err
	}
	open := func() *adapter.Sandbox {
		sb, err := adapter.New(adapter.Options{Control: control, Token: secret})
		if err != nil {
			panic(err)
		}
		return sb
	}
	idle, busy := open(), open()
	if _, err := idle.Info(ctx); err != nil {
		return err
	}
	ends := make(chan error, 3)
	if err := hold(ctx, busy, ends); err != nil {
		return err
	}
	fmt.Println("busy")
	var kinds []string
	for range cap(ends) {
		err := <-ends
		if err == nil {
			return errors.New("something ended well")
		}
		kinds = append(kinds, string(sandbox.KindOf(err)))
	}
	fmt.Println(strings.Join(kinds, ","))
	<-ctx.Done()
	return nil
}

// hold begins a command, an upload and a download that do not end.
func hold(ctx context.Context, sb *adapter.Sandbox, ends chan<- error) error {
	if _, err := sb.Exec(ctx, "truncate -s 1G big || dd if=/dev/zero of=big bs=1 count=0 seek=1G", sandbox.ExecOptions{}); err != nil {
		return err
	}
	src, err := sb.ReadFileStream(ctx, "big", sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	if _, err := io.ReadFull(src, make([]byte, 1<<20)); err != nil {
		return err
	}
	sink, err := sb.OpenWrite(ctx, "up", sandbox.WriteOptions{})
	if err != nil {
		return err
	}
	if _, err := sink.Writer().Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	began, wrote := io.Pipe()
	go func() {
		_, err := sb.Exec(ctx, "echo > begun; sleep 1000", sandbox.ExecOptions{})
		ends <- err
	}()
	go func() {
		for {
			if ok, _ := sb.Exists(ctx, "begun", sandbox.ExistsOptions{}); ok {
				break
			}
		}
		wrote.Close()
		_, err := io.Copy(io.Discard, io.LimitReader(&slow{src}, 900<<20))
		ends <- err
	}()
	go func() {
		for {
			if _, err := sink.Writer().Write(make([]byte, 1<<16)); err != nil {
				ends <- sink.Abort(err) // which says why
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	_, err = io.ReadAll(began)
	return err
}

// slow reads little by little.
type slow struct{ io.Reader }

func (s *slow) Read(b []byte) (int, error) {
	time.Sleep(50 * time.Millisecond)
	return s.Reader.Read(b[:min(len(b), 64<<10)])
}
