// SPDX-License-Identifier: Apache-2.0

// Package clip truncates and flattens texts and lists in errors, Events and conditions, because texts from a caller, a kubelet or an API
// server may have megabytes.
package clip

import (
	"fmt"
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

// Names joins names by commas. It includes at most `most` of them, and counts the others.
func Names(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
