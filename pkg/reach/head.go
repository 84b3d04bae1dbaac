// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"bytes"
	"time"

	"navix.sh/atoll/pkg/problem"
)

// What a sandbox may say before the body of a response: every line of it takes memory here, many times its length, and the
// caller who asked for it may be the sandbox's friend.
const (
	maxHeadBytes = 64 << 10 // informational responses included
	maxHeadLines = 256
	// headTimeout is how long a header may take from its first byte on. A response may begin as late as it likes: its caller
	// waits for it.
	headTimeout = 10 * time.Second
)

// head follows the header of a response, and those of the informational ones before it.
type head struct {
	bytes, lines int
	line         []byte // the beginning of the line so far
	under        bool   // a header has begun, and is not over
	fields       bool   // its first line has been read
	interim      bool   // it is that of an informational response, which another one follows
	over         bool
}

// statusAt is where the status stands in "HTTP/1.1 200 OK".
const statusAt = len("HTTP/1.1 ")

// pass takes what comes next, and refuses a header that is too large.
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
