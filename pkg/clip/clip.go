// SPDX-License-Identifier: Apache-2.0

// Package clip truncates and flattens texts in errors, Events and conditions, because texts from a caller, a kubelet or an API server may
// have megabytes.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Line returns a text as one line: words with one space between them, without control characters.
func Line(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 }), " ")
}

// Text returns at most `most` bytes of a text, as valid UTF-8. A truncated text ends with an ellipsis.
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
