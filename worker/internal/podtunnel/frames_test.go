// SPDX-License-Identifier: Apache-2.0

package podtunnel

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"navix.sh/atoll/e2e/must"
)

// written is a connection that keeps what is written to it.
type written struct {
	net.Conn
	all   bytes.Buffer
	sizes []int
}

func (w *written) Write(p []byte) (int, error) {
	w.sizes = append(w.sizes, len(p))
	return w.all.Write(p)
}

// spdyFrame is a frame of data of so many bytes.
func spdyFrame(length int) []byte {
	frame := make([]byte, frameHeader+length)
	binary.BigEndian.PutUint32(frame, 7)
	binary.BigEndian.PutUint32(frame[4:], uint32(length)|1<<24) // a flag
	for i := range length {
		frame[frameHeader+i] = byte(i)
	}
	return frame
}

// A small frame goes out at once, however it is written; a large one as it comes, after its header.
func TestASmallFrameIsOneWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		frames, pieces, want []int
	}{
		"as the library writes it": {[]int{100}, []int{4, 4, 100}, []int{108}},
		"two, one after the other": {[]int{100, 5}, []int{4, 4, 100, 4, 4, 5}, []int{108, 13}},
		"two in one write":         {[]int{100, 5}, []int{121}, []int{108, 13}},
		"a byte at a time":         {[]int{3}, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{11}},
		"without data":             {[]int{0, 0}, []int{4, 4, 8}, []int{8, 8}},
		"the largest":              {[]int{smallFrame - frameHeader}, []int{4, 4, smallFrame - frameHeader}, []int{smallFrame}},
		"a larger one":             {[]int{smallFrame, 1}, []int{4, 4, smallFrame, 4, 4, 1}, []int{frameHeader, smallFrame, 9}},
		"a larger one in pieces":   {[]int{20000}, []int{4, 4, 12000, 8000}, []int{frameHeader, 12000, 8000}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []byte
			for _, length := range tc.frames {
				all = append(all, spdyFrame(length)...)
			}
			to := &written{}
			f := &frames{Conn: to}
			rest := all
			for _, n := range tc.pieces {
				got, err := f.Write(rest[:n])
				must.Succeed(t, err)
				if got != n {
					t.Errorf("%d of %d bytes were taken", got, n)
				}
				rest = rest[n:]
			}
			if !bytes.Equal(to.all.Bytes(), all) || !slices.Equal(to.sizes, tc.want) {
				t.Errorf("writes of %v bytes, want %v; %d bytes, of %d", to.sizes, tc.want, to.all.Len(), len(all))
			}
		})
	}
}
