package picker

import (
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extproc "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// With more, a value is added.
func header(name, value string, more bool) *core.HeaderValueOption {
	action := core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	if more {
		action = core.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	}
	return &core.HeaderValueOption{Header: &core.HeaderValue{Key: strings.ToLower(name), RawValue: []byte(value)}, AppendAction: action}
}

func destination(to string) []*core.HeaderValueOption {
	return []*core.HeaderValueOption{header(keyDestination, to, false)}
}

// naming adds the endpoints as metadata.
func naming(m *extproc.ProcessingResponse, to string) *extproc.ProcessingResponse {
	m.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{spaceBalancer: structpb.NewStructValue(
		&structpb.Struct{Fields: map[string]*structpb.Value{keyDestination: structpb.NewStringValue(to)}})}}
	return m
}

func headers(request bool, set []*core.HeaderValueOption, remove []string) *extproc.ProcessingResponse {
	r := &extproc.HeadersResponse{Response: &extproc.CommonResponse{ClearRouteCache: request && len(set) > 0}}
	if len(set) > 0 || len(remove) > 0 {
		r.Response.HeaderMutation = &extproc.HeaderMutation{SetHeaders: set, RemoveHeaders: remove}
	}
	if request {
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestHeaders{RequestHeaders: r}}
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseHeaders{ResponseHeaders: r}}
}

func bodyOf(request bool, c *extproc.CommonResponse) *extproc.ProcessingResponse {
	r := &extproc.BodyResponse{Response: c}
	if request {
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestBody{RequestBody: r}}
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseBody{ResponseBody: r}}
}

func piece(request bool, p []byte, end bool) *extproc.ProcessingResponse {
	return bodyOf(request, &extproc.CommonResponse{BodyMutation: &extproc.BodyMutation{Mutation: &extproc.BodyMutation_StreamedResponse{
		StreamedResponse: &extproc.StreamedBodyResponse{Body: p, EndOfStream: end}}}})
}

func untouched(request bool) *extproc.ProcessingResponse {
	return bodyOf(request, &extproc.CommonResponse{})
}

// buffered changes a header after its body, and replaces the body by whole if not nil.
func buffered(change *extproc.HeaderMutation, whole []byte) *extproc.ProcessingResponse {
	c := &extproc.CommonResponse{HeaderMutation: change, ClearRouteCache: true}
	if whole != nil {
		c.BodyMutation = &extproc.BodyMutation{Mutation: &extproc.BodyMutation_Body{Body: whole}}
	}
	return bodyOf(true, c)
}

func trailers(request bool) *extproc.ProcessingResponse {
	r := &extproc.TrailersResponse{}
	if request {
		return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_RequestTrailers{RequestTrailers: r}}
	}
	return &extproc.ProcessingResponse{Response: &extproc.ProcessingResponse_ResponseTrailers{ResponseTrailers: r}}
}

func (x *exchange) echo(m *extproc.ProcessingRequest) *extproc.ProcessingResponse {
	through := func(request, duplex bool, b *extproc.HttpBody) *extproc.ProcessingResponse {
		if duplex {
			return piece(request, b.GetBody(), b.GetEndOfStream())
		}
		return untouched(request)
	}
	switch {
	case m.GetRequestBody() != nil:
		return through(true, x.mode.duplexIn(), m.GetRequestBody())
	case m.GetRequestTrailers() != nil:
		return trailers(true)
	case m.GetResponseHeaders() != nil:
		return headers(false, nil, nil)
	case m.GetResponseBody() != nil:
		return through(false, x.mode.duplexOut(), m.GetResponseBody())
	default:
		return trailers(false)
	}
}
