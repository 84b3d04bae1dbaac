// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// TestAnErrorOfSeveralCausesIsOneLine, with its own words; joined errors have a line each.
func TestAnErrorOfSeveralCausesIsOneLine(t *testing.T) {
	a, b := errors.New("the archive is damaged"), errors.New("EOF")
	for want, err := range map[string]error{
		"atollctl: x.tgz: the archive is damaged: EOF\n":    fmt.Errorf("x.tgz: %w: %w", a, b),
		"atollctl: the archive is damaged: EOF\n":           errors.Join(fmt.Errorf("%w: %w", a, b), nil),
		"atollctl: the archive is damaged\natollctl: EOF\n": errors.Join(a, b),
	} {
		var out bytes.Buffer
		reportError(&out, err)
		if out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}
}
