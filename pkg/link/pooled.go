// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// buffers is a pool with a tier for each power of two. gRPC's own pool has no tier between 32 KiB and 1 MiB, so that a tunnel message of a
// little over 32 KiB would take and clear 1 MiB at each end.
var buffers = func() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(8, 12, 14, 15, 16, 17, 18, 19, 20)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return pool
}()

// pooled is gRPC's protobuf codec with buffers as its pool.
type pooled struct{ encoding.CodecV2 }

func (p pooled) Marshal(v any) (mem.BufferSlice, error) {
	message, ok := v.(proto.Message)
	if !ok {
		return p.CodecV2.Marshal(v)
	}
	size, options := proto.Size(message), proto.MarshalOptions{UseCachedSize: true}
	if mem.IsBelowBufferPoolingThreshold(size) {
		data, err := options.Marshal(message)
		if err != nil {
			return nil, fmt.Errorf("encoding a message: %w", err)
		}
		return mem.BufferSlice{mem.SliceBuffer(data)}, nil
	}
	buffer := buffers.Get(size)
	if _, err := options.MarshalAppend((*buffer)[:0], message); err != nil {
		buffers.Put(buffer)
		return nil, fmt.Errorf("encoding a message: %w", err)
	}
	return mem.BufferSlice{mem.NewBuffer(buffer, buffers)}, nil
}

func (p pooled) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(buffers)
	defer buffer.Free()
	return p.CodecV2.Unmarshal(mem.BufferSlice{buffer}, v)
}
