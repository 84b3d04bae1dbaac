// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"strings"
	"unicode/utf8"
)

// Clip bounds a text that an error, an Event or a condition repeats, in bytes, and makes it valid UTF-8.
func Clip(text string, most int) string {
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
