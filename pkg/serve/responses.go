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
	// callersResponses is how many bytes of responses one caller may have under way, and allResponses how many all callers have
	// together, in equal shares.
	callersResponses = 8 << 20
	allResponses     = 32 << 20
	// smallResponse is not counted in bytes; because maxUntaken bounds the number, and gRPC keeps such a buffer without a notice of its end.
	smallResponse = 1 << 10
	// jsonSize is how many times its size in protobuf a response may take as JSON, before it is written.
	jsonSize = 4
)

// responses bounds the bytes of responses that are encoded and not yet taken, by caller (I14). The budget is taken before a response is
// encoded. A caller that has none under way always gets one; because a response may be larger than its caller's share.
type responses struct {
	each, inAll int

	mu      sync.Mutex
	callers map[string]int
}

func newResponses() *responses {
	return &responses{each: callersResponses, inAll: allResponses, callers: map[string]int{}}
}

// take counts a response until the returned function is called, or refuses it.
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

// outgoing is a response whose size is counted until it is on the wire.
type outgoing struct {
	protobuf.Message
	size  int
	taken func()
}

// respond counts a response of gRPC. It also counts no longer than its connection is open; because gRPC then forgets its buffers.
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

// marshal encodes the response into a buffer that gRPC frees when it has written it, or will not.
func (o *outgoing) marshal() (mem.BufferSlice, error) {
	// Size was called already, and the message is not shared any more.
	data, err := protobuf.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, o.size), o.Message)
	if err != nil {
		o.taken()
		return nil, err
	}
	return mem.BufferSlice{mem.NewBuffer(&data, freed(o.taken))}, nil
}

// freed is a pool that keeps no buffer: it is called when one is freed.
type freed func()

// Get is not called.
func (freed) Get(length int) *[]byte {
	b := make([]byte, length)
	return &b
}

// Put implements mem.BufferPool.
func (f freed) Put(*[]byte) { f() }

type heldKey struct{}

// held are the responses of one REST request.
type held struct {
	responses *responses
	caller    string
	taken     []func()
}

// withHeld counts what a REST request's response takes until done is called.
func (g *guard) withHeld(ctx context.Context, caller string) (_ context.Context, done func()) {
	h := &held{responses: g.responses, caller: caller}
	return context.WithValue(ctx, heldKey{}, h), func() {
		for _, taken := range h.taken {
			taken()
		}
	}
}

// hold counts a response of REST before it is encoded.
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
