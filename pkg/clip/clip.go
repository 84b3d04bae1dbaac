// SPDX-License-Identifier: Apache-2.0

// Package clip bounds texts in errors, Events and conditions; because texts of a caller, a kubelet or an API server may be
// megabytes.
package clip

import (
	"strings"
	"unicode/utf8"
)

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
