// SPDX-License-Identifier: Apache-2.0

// Package clip bounds texts that errors, Events and conditions repeat: they may come from a caller, a kubelet or an API server,
// and be megabytes.
package clip

import (
	"strings"
	"unicode/utf8"
)

// Text returns a text of at most so many bytes, in valid UTF-8; one that was longer ends with dots.
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
