package server_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// userTimeout reads TCP_USER_TIMEOUT in milliseconds.
func userTimeout(t *testing.T, conn *net.TCPConn) (ms int) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	})
	if err != nil {
		t.Fatal(err)
	}
	return ms
}

// TestAStalledReaderIsNoDeadPeer: TCP_USER_TIMEOUT also ends a connection whose
// peer lives and does not read, so a data connection, which may stall for
// stall_timeout, must not have it. A control connection must.
func TestAStalledReaderIsNoDeadPeer(t *testing.T) {
	table := transfer.NewTable(transfer.Config{})
	srv := server.New(server.Config{Transfers: table})
	_, token, err := table.MintRead(t.Context(), transfer.Owner{Tenant: "t"}, func(context.Context) (sandbox.Source, error) {
		return sandbox.ContentSource(sandbox.FileContent{Data: make([]byte, 8<<20), Size: 8 << 20}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		plane       server.Planes
		say, answer string
		want        int
	}{
		{server.Data, "CTRLD1 " + token + "\n", "OK\n", 0},
		{server.Control, `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n", 45000},
	} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		near, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		far, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		ln.Close()
		var serving sync.WaitGroup
		serving.Go(func() { srv.ServeConn(context.Background(), far, tc.plane) })
		near.SetDeadline(time.Now().Add(30 * time.Second))
		io.WriteString(near, tc.say)
		answer := make([]byte, len(tc.answer))
		if _, err := io.ReadFull(near, answer); err != nil || string(answer) != tc.answer {
			t.Fatalf("%q, %v", answer, err)
		}
		if got := userTimeout(t, far.(*net.TCPConn)); got != tc.want {
			t.Errorf("plane %d: TCP_USER_TIMEOUT is %d ms, want %d", tc.plane, got, tc.want)
		}
		near.Close()
		serving.Wait()
	}
	srv.Close()
	table.Close(&sandbox.Error{Kind: sandbox.KindUnavailable})
}
