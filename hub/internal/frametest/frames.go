// SPDX-License-Identifier: Apache-2.0

// Package frametest converts a worker's frames to bytes and back, for fuzzing: any bytes are valid input.
package frametest

import (
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	federationv1 "navix.sh/atoll/api/federation/v1"
)

// most bounds the number of frames.
const most = 64

// Cut splits data into frames. Each frame follows its length in two bytes. Cut drops invalid frames.
func Cut(data []byte) (out []*federationv1.WorkerFrame) {
	for len(data) >= 2 && len(out) < most {
		n := min(int(binary.BigEndian.Uint16(data)), len(data)-2)
		frame := &federationv1.WorkerFrame{}
		if proto.Unmarshal(data[2:2+n], frame) == nil {
			out = append(out, frame)
		}
		data = data[2+n:]
	}
	return out
}

// Join is the reverse of Cut.
func Join(tb testing.TB, frames ...*federationv1.WorkerFrame) (out []byte) {
	tb.Helper()
	for _, frame := range frames {
		data, err := proto.Marshal(frame)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(binary.BigEndian.AppendUint16(out, uint16(len(data))), data...)
	}
	return out
}
