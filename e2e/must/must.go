// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at an error that it does not examine.
package must

import (
	"io"
	"testing"
)

// mostRead is what a test may read from what it does not know.
const mostRead = 64 << 20

// Succeed ends the test if there is an error.
func Succeed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Read returns what a reader has, and ends the test if that is too much.
func Read(t testing.TB, r io.Reader) []byte {
	t.Helper()
	text, err := io.ReadAll(io.LimitReader(r, mostRead+1))
	Succeed(t, err)
	if len(text) > mostRead {
		t.Fatalf("there are more than %d bytes to read", mostRead)
	}
	return text
}
