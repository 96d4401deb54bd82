package integration

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/dataport"
	"github.com/controld/controld/integration/faultfs"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandbox/local"
)

// The variables that turn this program into one that hands a file over to all who
// connect: what the workload of a sandbox can do that has mounted FUSE.
const (
	handsOver   = "CONTROLD_TEST_HANDS_OVER"    // the file
	handsOverAt = "CONTROLD_TEST_HANDS_OVER_AT" // the socket
)

func handOver() error {
	f, err := os.Open(os.Getenv(handsOver))
	if err != nil {
		return err
	}
	ln, err := net.Listen("unix", os.Getenv(handsOverAt))
	if err != nil {
		return err
	}
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		dataport.PassFile(conn, f)
		conn.Close()
	}
}

// relayed answers a preamble with what a program that hands over gives.
func relayed(conn net.Conn, from string) error {
	if _, err := io.ReadFull(conn, make([]byte, 51)); err != nil {
		return err
	}
	src, err := net.Dial("unix", from)
	if err != nil {
		return err
	}
	defer src.Close()
	b, oob := make([]byte, 3), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := src.(*net.UnixConn).ReadMsgUnix(b, oob)
	if err != nil {
		return err
	}
	_, _, err = conn.(*net.UnixConn).WriteMsgUnix(b[:n], oob[:oobn], nil)
	messages, _ := unix.ParseSocketControlMessage(oob[:oobn])
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
	return err
}

// TestFileThatHangs: P11.19. A file on FUSE is refused, also one whose file system
// does not answer: whoever waits for it can give up, and the others go on.
func TestFileThatHangs(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	fs, err := faultfs.Mount(dir)
	if errors.Is(err, faultfs.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fs.Close)
	at := filepath.Join(t.TempDir(), "s")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), handsOver+"="+filepath.Join(dir, "f"), handsOverAt+"="+at)
	cmd.Stderr = os.Stderr
	if err := fs.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fs.Release()
		cmd.Process.Kill()
		cmd.Wait()
	})
	awaitFile(t, at)
	sb := liar(t, at)

	_, err = sb.OpenRead(t.Context(), "f", sandbox.ReadOptions{})
	wantKind(t, err, sandbox.KindInternal)
	fs.Plan(faultfs.Fault{Call: faultfs.Getattr, Name: "f", Stall: true})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		waiting := fs.Waiting()
		go func() {
			_, err := sb.OpenRead(ctx, "f", sandbox.ReadOptions{})
			failed <- err
		}()
		await(t, "the look at the file to hang", func() bool { return fs.Waiting() > waiting })
		cancel()
		select {
		case err := <-failed:
			wantKind(t, err, sandbox.KindCancelled)
		case <-time.After(patience):
			t.Fatal("whoever gave up still waits")
		}
		if _, err := sb.Stat(t.Context(), "f", sandbox.StatOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// liar is an adapter of a server that answers every token with the file that is
// handed over at a socket.
func liar(t *testing.T, at string) *adapter.Sandbox {
	t.Helper()
	dir := t.TempDir()
	b, err := local.New(local.Options{DefaultCwd: filepath.Join(dir, "cwd"), StateDir: filepath.Join(dir, "state")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	if err := os.WriteFile(filepath.Join(dir, "cwd", "f"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	e := dataport.Endpoint{Scheme: dataport.SchemeUnix, Path: filepath.Join(dir, "s")}
	ln, err := dataport.Listen(e, dataport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	srv := server.New(server.Config{Host: anybody{b}, PassFiles: &dataport.PassRules{},
		DataURLs:  func(net.Addr) []string { return []string{e.String()} },
		ServeData: func(_ context.Context, conn net.Conn, _ any) { relayed(conn, at); conn.Close() }})
	go srv.Serve(context.Background(), ln, server.Control|server.Data)
	t.Cleanup(func() { srv.Close() })
	sb, err := adapter.New(adapter.Options{Control: e.String(), Token: "x", PassFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sb.Close() })
	return sb
}
