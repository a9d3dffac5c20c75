package forward

import "context"

type callKey struct{}

// WithCall says that ctx is of the call with that number, unique in the process: all attempts of one client's request
// share it, whatever id the client gave the request.
func WithCall(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, callKey{}, n)
}

// CallOf is the number of the call that ctx is of; 0: none is known.
func CallOf(ctx context.Context) uint64 {
	n, _ := ctx.Value(callKey{}).(uint64)
	return n
}
