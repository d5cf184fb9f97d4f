package nodeclass

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"
)

// The types of the parts that images read.
const (
	typeShell      = `text/x-shellscript; charset="us-ascii"`
	typeNodeConfig = "application/node.eks.aws"
	boundary       = "//"
)

// part is a part of multipart user data.
type part struct {
	contentType string
	body        string
}

// joined writes parts as one multipart document, in their order.
func joined(parts []part) string {
	var b strings.Builder
	b.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + boundary + "\"\n\n")
	for _, p := range parts {
		b.WriteString("--" + boundary + "\nContent-Type: " + p.contentType + "\n\n" + strings.TrimRight(p.body, "\n") + "\n\n")
	}
	b.WriteString("--" + boundary + "--\n")
	return b.String()
}

// isMIME reports whether text starts with the headers of a multipart document, in whatever order (C-104).
func isMIME(text string) bool {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	name, _, found := strings.Cut(line, ":")
	return found && (strings.EqualFold(name, "MIME-Version") || strings.EqualFold(name, "Content-Type"))
}

// parts reads a multipart document.
func parts(text string) ([]part, error) {
	message, err := mail.ReadMessage(bufio.NewReader(strings.NewReader(strings.TrimSpace(text) + "\n")))
	if err != nil {
		return nil, fmt.Errorf("%w: user data is no MIME document: %w", ErrInvalid, err)
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("%w: content type of the user data: %w", ErrInvalid, err)
	}
	if !strings.HasPrefix(kind, "multipart/") {
		return nil, fmt.Errorf("%w: user data has the content type %s, not multipart", ErrInvalid, kind)
	}
	var out []part
	reader := multipart.NewReader(message.Body, params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: user data: %w", ErrInvalid, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, fmt.Errorf("%w: user data: %w", ErrInvalid, err)
		}
		out = append(out, part{contentType: p.Header.Get("Content-Type"), body: string(body)})
	}
}

// customParts returns the parts of the class's own user data: those of a multipart document, or one whose type other tells.
func customParts(text string, other func(string) string) ([]part, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if isMIME(text) {
		return parts(text)
	}
	return []part{{contentType: other(text), body: text}}, nil
}
