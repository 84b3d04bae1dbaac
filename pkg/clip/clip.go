// SPDX-License-Identifier: Apache-2.0

// Package clip bounds and flattens texts in errors, Events and conditions; because texts of a caller, a kubelet or an API server may be
// megabytes.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Line returns a text as one line: words with one space between them, without control characters.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), " ")
}

// Text returns at most so many bytes of a text, in valid UTF-8; a shortened text ends with dots.
func Text(text string, most int) string {
	const dots = "…"
	if len(text) > most {
		cut := max(0, most-len(dots))
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + dots
	}
	return strings.ToValidUTF8(text, string(utf8.RuneError))
}
