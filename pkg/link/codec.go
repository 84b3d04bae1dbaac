// SPDX-License-Identifier: Apache-2.0

package link

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// ErrUnsendable means that a stream cannot carry a frame: it is too large, or one of its texts is not UTF-8.
var ErrUnsendable = errors.New("no frame can carry it")

// Check returns ErrUnsendable for a frame that would be dropped.
func Check(frame proto.Message) error {
	if size := proto.Size(frame); size > maxMessage {
		return fmt.Errorf("%w: it has %d bytes, want at most %d", ErrUnsendable, size, maxMessage)
	}
	if _, err := proto.Marshal(frame); err != nil { // a text that is not UTF-8
		return fmt.Errorf("%w: %w", ErrUnsendable, err)
	}
	return nil
}

const (
	// maxItems bounds the messages in one frame. An empty one takes two bytes on the wire and a hundred times as much in memory.
	maxItems = 128 << 10
	// itemsUnchecked is the size below which a frame cannot hold enough of them to matter.
	itemsUnchecked = 64 << 10
)

// codec is gRPC's own codec, except that a bad frame does not end its stream. A frame that cannot be sent is sent empty, and a frame that
// cannot be read is received empty. Peers of every build ignore an empty frame like one of a newer peer. Both cases are counted.
type codec struct {
	encoding.CodecV2
	metrics *Metrics
	log     logr.Logger
	dropped *atomic.Uint64
}

func newCodec(m *Metrics, log logr.Logger) codec {
	return codec{pooled{encoding.GetCodecV2("proto")}, m, log, &atomic.Uint64{}}
}

// drop counts a frame. It logs only the first, the second, the fourth and so on, so that a peer with only bad frames does not fill the log.
func (c codec) drop(direction string, f proto.Message, why error) {
	c.metrics.drop(direction, f)
	if n := c.dropped.Add(1); n&(n-1) == 0 {
		c.log.Error(why, "dropped a frame", "direction", direction, "kind", kind(f), "dropped", n)
	}
}

var errTooMany = fmt.Errorf("it has more than %d messages", maxItems)

// frame reports whether a message is a frame of the attached stream. A tunnel needs every message, so an invalid one ends it.
func frame(v any) (proto.Message, bool) {
	switch v := v.(type) {
	case *federationv1.WorkerFrame:
		return v, true
	case *federationv1.HubFrame:
		return v, true
	default:
		return nil, false
	}
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	data, err := c.CodecV2.Marshal(v)
	f, is := frame(v)
	switch {
	case !is || err == nil && data.Len() <= maxMessage:
		return data, err
	case err == nil:
		err = fmt.Errorf("%w: it has %d bytes, want at most %d", ErrUnsendable, data.Len(), maxMessage)
		data.Free()
	}
	c.drop("out", f, err)
	return nil, nil
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, is := frame(v)
	if !is {
		return c.CodecV2.Unmarshal(data, v)
	}
	if data.Len() > itemsUnchecked {
		buf := data.MaterializeToBuffer(buffers)
		defer buf.Free()
		if !fewItems(buf.ReadOnlyData(), f.ProtoReflect().Descriptor()) {
			c.drop("in", f, errTooMany)
			return nil
		}
		data = mem.BufferSlice{buf}
	}
	if err := c.CodecV2.Unmarshal(data, v); err != nil {
		c.drop("in", f, err)
		proto.Reset(f)
	}
	return nil
}

// fewItems reports whether an encoded message holds at most maxItems messages. A message that cannot be parsed counts as small.
func fewItems(data []byte, of protoreflect.MessageDescriptor) bool {
	items := 0
	countItems(data, of, &items)
	return items <= maxItems
}

func countItems(data []byte, of protoreflect.MessageDescriptor, items *int) {
	if *items++; *items > maxItems {
		return
	}
	fields := of.Fields()
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
				return
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return
		}
		data = data[n:]
		if field := fields.ByNumber(number); field != nil && field.Message() != nil {
			countItems(value, field.Message(), items)
		}
		if *items > maxItems {
			return
		}
	}
}
