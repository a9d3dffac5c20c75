package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"
)

// ServerStream is a front door's end of a control stream, ClientStream the agent's.
type (
	ServerStream = grpc.BidiStreamingServer[Up, Down]
	ClientStream = grpc.BidiStreamingClient[Up, Down]
)

// Server serves control streams: the stream ends when Control returns.
type Server interface {
	Control(stream ServerStream) error
}

var stream = grpc.StreamDesc{
	StreamName: "Control", ServerStreams: true, ClientStreams: true,
	Handler: func(s any, stream grpc.ServerStream) error {
		return s.(Server).Control(&grpc.GenericServerStream[Up, Down]{ServerStream: stream})
	},
}

var service = grpc.ServiceDesc{ServiceName: "rouse.exchange.v1.Exchange", HandlerType: (*Server)(nil), Streams: []grpc.StreamDesc{stream}}

// NewServer returns a gRPC server with only s. Its Stop waits for the calls of s.
func NewServer(s Server, options ...grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxConcurrentStreams(16), grpc.MaxHeaderListSize(64 << 10), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: DeadAfter / 2, Timeout: DeadAfter / 2}),
	}, options...)...)
	g.RegisterService(&service, s)
	return g
}

// Open opens a control stream on a connection.
func Open(ctx context.Context, conn *grpc.ClientConn) (ClientStream, error) {
	s, err := conn.NewStream(ctx, &stream, Method, grpc.CallContentSubtype(codec{}.Name()), grpc.MaxCallRecvMsgSize(MaxMessage))
	if err != nil {
		return nil, fmt.Errorf("open the control stream: %w", err)
	}
	return &grpc.GenericClientStream[Up, Down]{ClientStream: s}, nil
}

type codec struct{}

func init() { encoding.RegisterCodec(codec{}) }

func (codec) Name() string { return "json" }

func (codec) Marshal(v any) ([]byte, error) {
	return json.Marshal(v)
}

// Unmarshal implements [encoding.Codec]. It replaces characters that control terminals, because messages get into logs.
func (codec) Unmarshal(data []byte, v any) error {
	return json.Unmarshal(legible(data), v)
}

// legible returns JSON with U+FFFD for control characters except tabs and line ends, and for characters that change the
// direction of text.
func legible(data []byte) []byte {
	directs := func(r rune) bool {
		return unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' || unicode.Is(unicode.Bidi_Control, r)
	}
	out := make([]byte, 0, len(data))
	for len(data) > 0 {
		var n int
		var bad bool
		switch {
		case bytes.HasPrefix(data, []byte(`\u`)) && len(data) >= 6:
			r, err := strconv.ParseUint(string(data[2:6]), 16, 16)
			n, bad = 6, err == nil && directs(rune(r))
		case data[0] == '\\' && len(data) >= 2:
			n, bad = 2, data[1] == 'b' || data[1] == 'f'
		default:
			var r rune
			r, n = utf8.DecodeRune(data)
			bad = directs(r)
		}
		if bad {
			out = append(out, "\uFFFD"...)
		} else {
			out = append(out, data[:n]...)
		}
		data = data[n:]
	}
	return out
}
