package peer

import (
	"bytes"
	"context"
	"io"
	"net"
	"os/exec"
	"sync"
	"syscall"
)

// Exec runs the command of the exec rows without a daemon: a shell with its
// output captured, in a process group of its own.
func Exec(ctx context.Context) error {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", "true")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Run()
}

// execBare runs a command for each byte that comes, and answers with one.
func execBare(conn net.Conn) error {
	b := []byte{done}
	for {
		if _, err := conn.Read(b); err != nil {
			return nil // the client has enough
		}
		if err := Exec(context.Background()); err != nil {
			return err
		}
		if _, err := conn.Write(b); err != nil {
			return err
		}
	}
}

// BareExec returns a call that has a bare server run a command. It may be
// called from many goroutines: each call at a time has a connection of its own,
// which serves later calls. The connections end with this process.
func BareExec(addr string) func() error {
	var mu sync.Mutex
	var free []net.Conn
	take := func() (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if n := len(free); n > 0 {
			conn := free[n-1]
			free = free[:n-1]
			return conn, nil
		}
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return nil, err
		}
		return conn, writeHeader(conn, run, "", 0)
	}
	return func() error {
		conn, err := take()
		if err != nil {
			return err
		}
		b := []byte{run}
		if _, err := conn.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, b); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		free = append(free, conn)
		return nil
	}
}
