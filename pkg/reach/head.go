// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"time"

	"navix.sh/atoll/pkg/problem"
)

// Bounds of a response before its body. Each header line takes many times its length in memory here, and the sandbox and the caller may
// collude.
const (
	maxHeadBytes = 64 << 10 // informational responses included
	maxHeadLines = 256
	// headTimeout is how long a header may take from its first byte on. The first byte may take any time, because the caller waits for it.
	headTimeout = 10 * time.Second
)

// head parses the header of a response, and the headers of informational responses before it.
type head struct {
	bytes, lines int
	line         []byte // the beginning of the line so far
	under        bool   // a header has begun and has not ended
	fields       bool   // its first line has been read
	interim      bool   // the response is informational: another one follows
	over         bool
}

// statusAt is the offset of the status in "HTTP/1.1 200 OK".
const statusAt = len("HTTP/1.1 ")

// pass parses the next bytes, and fails if the header is too large.
func (h *head) pass(p []byte) error {
	for _, c := range p {
		if h.over {
			return nil
		}
		if h.bytes++; h.bytes > maxHeadBytes {
			return problem.New(problem.Unavailable, "the sandbox's response has a header of more than %d bytes", maxHeadBytes)
		}
		h.under = true
		if c != '\n' {
			if len(h.line) < statusAt+len("200") {
				h.line = append(h.line, c)
			}
			continue
		}
		if h.lines++; h.lines > maxHeadLines {
			return problem.New(problem.Unavailable, "the sandbox's response has a header of more than %d lines", maxHeadLines)
		}
		h.endLine(bytes.TrimSuffix(h.line, []byte("\r")))
		h.line = h.line[:0]
	}
	return nil
}

func (h *head) endLine(line []byte) {
	switch {
	case !h.fields:
		h.fields = true
		status := line[min(len(line), statusAt):]
		h.interim = bytes.HasPrefix(status, []byte("1")) && !bytes.HasPrefix(status, []byte("101"))
	case len(line) == 0:
		h.over = !h.interim
		h.under, h.fields = false, false
	}
}
