package peer

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const service = "load.Peer"

// Messages are the bytes and strings of protobuf's own wrappers: the least
// that a protobuf message can be.
type (
	text = wrapperspb.StringValue
	blob = wrapperspb.BytesValue
)

func serveGRPC(l net.Listener) error {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "stat", Handler: unary(grpcStat)},
			{MethodName: "read", Handler: unary(grpcRead)},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "down", Handler: grpcDown, ServerStreams: true},
			{StreamName: "up", Handler: grpcUp, ClientStreams: true},
		},
	}, struct{}{})
	return s.Serve(l)
}

// unary makes a method of a function of a path.
func unary(f func(path string) ([]byte, error)) grpc.MethodHandler {
	return func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var req text
		if err := decode(&req); err != nil {
			return nil, err
		}
		b, err := f(req.Value)
		return &blob{Value: b}, err
	}
}

func grpcStat(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(st.Size()))
	b = binary.BigEndian.AppendUint64(b, uint64(st.ModTime().UnixNano()))
	return binary.BigEndian.AppendUint32(b, uint32(st.Mode())), nil
}

func grpcRead(path string) ([]byte, error) { return os.ReadFile(path) }

func grpcDown(_ any, s grpc.ServerStream) error {
	var req text
	if err := s.RecvMsg(&req); err != nil {
		return err
	}
	f, err := os.Open(req.Value)
	if err != nil {
		return err
	}
	defer f.Close()
	return sendAll(f, s.SendMsg)
}

// sendAll sends a reader in messages.
func sendAll(r io.Reader, send func(any) error) error {
	buf := make([]byte, message)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := send(&blob{Value: buf[:n]}); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receiveAll writes messages to a new file.
func receiveAll(path string, receive func(any) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var msg blob
	for {
		if err := receive(&msg); err == io.EOF {
			return f.Close()
		} else if err != nil {
			return err
		}
		if _, err := f.Write(msg.Value); err != nil {
			return err
		}
	}
}

func grpcUp(_ any, s grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(s.Context())
	if err := receiveAll(md.Get("path")[0], s.RecvMsg); err != nil {
		return err
	}
	return s.SendMsg(&blob{})
}

// GRPCClient is one connection.
type GRPCClient struct{ cc *grpc.ClientConn }

// DialGRPC connects.
func DialGRPC(addr string) (*GRPCClient, error) {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	return &GRPCClient{cc}, err
}

// Call calls stat or read.
func (c *GRPCClient) Call(ctx context.Context, method, path string) ([]byte, error) {
	var reply blob
	err := c.cc.Invoke(ctx, "/"+service+"/"+method, &text{Value: path}, &reply)
	return reply.Value, err
}

// Down copies a file of the server to a new file.
func (c *GRPCClient) Down(ctx context.Context, path, local string) error {
	s, err := c.cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+service+"/down")
	if err != nil {
		return err
	}
	if err := s.SendMsg(&text{Value: path}); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return receiveAll(local, s.RecvMsg)
}

// Up copies a file to a new file of the server.
func (c *GRPCClient) Up(ctx context.Context, path, local string) error {
	f, err := os.Open(local)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx = metadata.AppendToOutgoingContext(ctx, "path", path)
	s, err := c.cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/"+service+"/up")
	if err != nil {
		return err
	}
	if err := sendAll(f, s.SendMsg); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(&blob{})
}
