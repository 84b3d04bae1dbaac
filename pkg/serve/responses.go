// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
	protobuf "google.golang.org/protobuf/proto"

	"navix.sh/atoll/pkg/problem"
)

const (
	// callersResponses is how many bytes of responses of one caller may be unsent, and allResponses how many of all callers together, in equal
	// shares.
	callersResponses = 8 << 20
	allResponses     = 32 << 20
	// smallResponse and less are not counted in bytes: maxUntaken bounds their number, and gRPC does not report when it frees so small a
	// buffer.
	smallResponse = 1 << 10
	// jsonSize is the factor by which a response as JSON may be larger than as protobuf.
	jsonSize = 4
)

// responses bounds the bytes of responses that are encoded and not sent yet, per caller (I14). The budget is reserved before a response is
// encoded. A caller without unsent responses may always have one, because a response may be larger than its caller's share.
type responses struct {
	each, inAll int

	mu      sync.Mutex
	callers map[string]int
}

func newResponses() *responses {
	return &responses{each: callersResponses, inAll: allResponses, callers: map[string]int{}}
}

// take reserves the size of a response until the returned function is called, or returns an error.
func (r *responses) take(caller string, size int) (taken func(), err error) {
	if size <= smallResponse {
		return func() {}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	held := r.callers[caller]
	if held > 0 && held+size > min(r.each, r.inAll/len(r.callers)) {
		return nil, problem.New(problem.RateLimited, "this caller has not taken %d bytes of earlier responses yet", held).
			WithRetryAfter(time.Second)
	}
	r.callers[caller] = held + size
	return sync.OnceFunc(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.callers[caller] -= size; r.callers[caller] == 0 {
			delete(r.callers, caller)
		}
	}), nil
}

// outgoing is a response whose size is counted until it is sent.
type outgoing struct {
	protobuf.Message
	size  int
	taken func()
}

// respond reserves the size of a gRPC response. The reservation also ends with the connection, because gRPC does not free the buffers of a
// closed connection.
func (g *guard) respond(ctx context.Context, caller string, out any) (any, error) {
	message, ok := out.(protobuf.Message)
	if !ok {
		return out, nil
	}
	size := protobuf.Size(message)
	if size <= smallResponse {
		return out, nil
	}
	taken, err := g.responses.take(caller, size)
	if err != nil {
		return nil, err
	}
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		taken = c.streams.until(taken)
	}
	return &outgoing{Message: message, size: size, taken: taken}, nil
}

// marshal encodes the response into a buffer that gRPC frees after it has written or dropped it.
func (o *outgoing) marshal() (mem.BufferSlice, error) {
	// Size was called already, and no other goroutine uses the message now.
	data, err := protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, o.size), o.Message)
	if err != nil {
		o.taken()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&data, freed(o.taken))}, nil
}

// freed is a pool that reuses no buffers; it is called when a buffer is freed.
type freed func()

// Get is not called.
func (freed) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (f freed) Put(*[]byte) { f() }

type heldKey struct{}

// held are the reservations of one REST request.
type held struct {
	responses *responses
	caller    string
	taken     []func()
}

// withHeld counts the response of a REST request until done is called.
func (g *guard) withHeld(ctx context.Context, caller string) (_ context.Context, done func()) {
	h := &held{responses: g.responses, caller: caller}
	return context.WithValue(ctx, heldKey{}, h), func() {
		for _, taken := range h.taken {
			taken()
		}
	}
}

// hold reserves the size of a REST response before it is encoded.
func hold(ctx context.Context, out any) error {
	h, _ := ctx.Value(heldKey{}).(*held)
	message, ok := out.(protobuf.Message)
	if h == nil || !ok {
		return nil
	}
	taken, err := h.responses.take(h.caller, jsonSize*protobuf.Size(message))
	if err != nil {
		return err
	}
	h.taken = append(h.taken, taken)
	return nil
}
