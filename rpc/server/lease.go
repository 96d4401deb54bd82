package server

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// passable returns the file of a transfer that can be handed over in place of
// its bytes. Where something else is done with them on the way there is none.
func passable(t *transfer.Transfer, rules dataport.PassRules) (*os.File, error) {
	var bare any
	if t.Direction == transfer.Write {
		bare = t.Sink().Writer()
	} else {
		bare = t.Source().Reader()
	}
	file, ok := bare.(*os.File)
	if !ok || rules.Check(file, t.Direction == transfer.Write) != nil {
		return nil, &sandbox.Error{Kind: sandbox.KindUnsupported, Op: "claim"}
	}
	return file, nil
}

// lease is a claimed transfer whose file is handed over: it lasts as long as
// its connection, on which nothing else is said.
type lease struct {
	t    *transfer.Transfer
	file *os.File
}

// ServeData implements [dataport.Handler].
func (l *lease) ServeData(_ context.Context, conn net.Conn) {
	defer conn.Close()
	if err := dataport.PassFile(conn, l.file); err != nil {
		l.t.Fail(dataport.Classify(err))
		return
	}
	if !l.t.Start(func() { conn.SetDeadline(past()) }) {
		return
	}
	switch committed := l.wait(conn); {
	case l.t.Direction == transfer.Read:
		l.t.Lent()
	case committed:
		l.t.FinishWrite()
	default:
		l.t.Fail(&sandbox.Error{Kind: sandbox.KindAborted, Op: "write_file_stream", Outcome: sandbox.OutcomeNone,
			Message: "the connection of the lease was closed"})
	}
	<-l.t.Settled()
}

// wait waits for a commit, for the end of the transfer or for that of the
// connection. What comes on it is dropped.
func (l *lease) wait(conn net.Conn) (committed bool) {
	var drop [64]byte
	for {
		conn.SetReadDeadline(time.Time{})
		commit, ended := l.t.Wanted()
		if commit.Known || ended {
			return commit.Known
		}
		if _, err := conn.Read(drop[:]); err != nil && !os.IsTimeout(err) {
			commit, _ := l.t.Wanted()
			return commit.Known
		}
	}
}
