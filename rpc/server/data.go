package server

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// dataConn is a claimed transfer on its data connection.
type dataConn struct {
	t    *transfer.Transfer
	pump *dataport.Pump
}

// past is a deadline that breaks every blocking call.
func past() time.Time { return time.Unix(1, 0) }

// ServeData implements [dataport.Handler]: it pumps the transfer's bytes,
// records the outcome and then closes conn.
func (d *dataConn) ServeData(ctx context.Context, conn net.Conn) {
	if d.t.Direction == transfer.Write {
		// A read's goes with its bytes. A dead connection shows below.
		io.WriteString(conn, dataport.Welcome)
	}
	if !d.t.Start(func() { conn.SetDeadline(past()) }) {
		dataport.Reset(conn)
		return
	}
	if d.t.Direction == transfer.Read {
		d.send(conn)
	} else {
		d.receive(conn)
	}
	<-d.t.Settled()
	if d.t.State() != transfer.Done {
		dataport.Reset(conn)
		return
	}
	if d.t.Direction == transfer.Read {
		dataport.CloseSent(conn, d.pump.Stall())
		return
	}
	conn.SetDeadline(time.Time{})
	dataport.CloseLinger(conn)
}

// send pumps a read. The outcome stands when the socket has the last byte.
func (d *dataConn) send(conn net.Conn) {
	src := d.t.Source()
	var length sandbox.Optional[int64]
	length.Value, length.Known = src.Length()
	sent, err := d.pump.Send(d.t.Tenant(), conn, src.Reader(), length, d.ended)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF): // of the file: a connection does not end so
		err = &sandbox.Error{Kind: sandbox.KindTruncated, Op: "read_file_stream", Bytes: sandbox.Some(sent), Expected: length}
	case err != nil:
		err = dataport.Classify(err)
	}
	d.t.FinishRead(sent, err)
}

// receive pumps a write: the data may end before or after the commit that
// names its count, and the end of data is never the verdict.
func (d *dataConn) receive(conn net.Conn) {
	got, err := d.pump.Receive(d.t.Tenant(), conn, d.t.Sink().Writer(), d.t.Durable(), d.t.Wanted)
	if err != nil {
		d.t.Fail(dataport.Classify(err))
		return
	}
	if got.EOF && !d.t.AwaitCommit(d.pump.Stall()) {
		d.t.Fail(&sandbox.Error{Kind: sandbox.KindStalled, Op: "write_file_stream", Message: "no commit came",
			Bytes: sandbox.Some(got.Bytes)})
		return
	}
	want, _ := d.t.Wanted()
	if got.More && got.Bytes == want.Value {
		got.Bytes++
	}
	if got.Bytes != want.Value {
		d.t.Fail(&sandbox.Error{Kind: sandbox.KindTruncated, Op: "write_file_stream",
			Bytes: sandbox.Some(got.Bytes), Expected: want})
		return
	}
	d.t.FinishWrite()
}

func (d *dataConn) ended() bool { return d.t.State().Ended() }
