// Command site converts this repository's documents to a site of plain pages that need no server.
//
//	go run ./site ../.. ../../dist/site     from internal/release
//
// The list in the README's section Documentation is the menu. Links have GitHub's heading anchors; a broken link is an
// error. The output is reproducible.
package main

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

// repository is the URL prefix for files that are not pages.
const repository = "https://github.com/rouse-dev/rouse/blob/main/"

//go:embed page.html page.js
var files embed.FS

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: site REPOSITORY FOLDER")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

type document struct {
	path    string
	source  []byte
	node    ast.Node
	title   string
	anchors map[string]bool
}

func page(p string) string {
	if p == "README.md" {
		return "index.html"
	}
	return strings.TrimSuffix(p, ".md") + ".html"
}

func documents(root string) ([]string, error) {
	all := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(p, ".md") {
			rel, _ := filepath.Rel(root, p) // below root
			all = append(all, filepath.ToSlash(rel))
		}
		return err
	})
	return all, err
}

func build(root, out string) error {
	paths, err := documents(root)
	if err != nil {
		return err
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()), goldmark.WithRendererOptions(html.WithUnsafe()))
	all := map[string]*document{}
	for _, p := range paths {
		d := &document{path: p, anchors: map[string]bool{}}
		if d.source, err = os.ReadFile(filepath.Join(root, p)); err != nil {
			return err
		}
		d.node = markdown.Parser().Parse(text.NewReader(d.source), parser.WithContext(parser.NewContext(parser.WithIDs(d))))
		d.title = title(d.node, d.source)
		all[p] = d
	}
	layout, err := template.ParseFS(files, "page.html")
	if err != nil {
		return err
	}
	menu, err := menuOf(all["README.md"])
	if err != nil {
		return err
	}
	var index []section
	var wrong []error
	for _, p := range paths {
		d := all[p]
		for _, l := range links(d.node) {
			to, file, err := d.target(root, string(*l), all)
			wrong = append(wrong, err)
			*l = []byte(to)
			if file != "" {
				raw, err := os.ReadFile(filepath.Join(root, file))
				wrong = append(wrong, err, write(filepath.Join(out, file), raw))
			}
		}
		sections := d.sections()
		index = append(index, sections...)
		whole, err := d.render(markdown, layout, menu, sections)
		if err == nil {
			err = write(filepath.Join(out, page(p)), whole)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	raw, _ := json.Marshal(index)          // of texts
	script, _ := files.ReadFile("page.js") // embedded
	// The index is a script, because pages in files may not fetch.
	wrong = append(wrong, write(filepath.Join(out, "index.js"), fmt.Appendf(nil, "documents = %s\n", raw)), write(filepath.Join(out, "page.js"), script))
	return errors.Join(wrong...)
}

func (d *document) render(markdown goldmark.Markdown, layout *template.Template, menu []group, sections []section) ([]byte, error) {
	var body, whole bytes.Buffer
	if err := markdown.Renderer().Render(&body, d.source, d.node); err != nil {
		return nil, err
	}
	here := page(d.path)
	data := map[string]any{"Title": d.title, "Up": strings.Repeat("../", strings.Count(d.path, "/")), "Menu": menu, "Here": here, "Body": template.HTML(bytes.ReplaceAll(body.Bytes(), []byte("<th></th>"), []byte("<td></td>"))), // an empty cell heads nothing
		"Sections": slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return s.level != 2 })}
	err := layout.Execute(&whole, data)
	return whole.Bytes(), err
}

func write(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, content, 0o644)
}

var notAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// Generate implements [parser.IDs] with GitHub's anchors.
func (d *document) Generate(value []byte, _ ast.NodeKind) []byte {
	plain := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(string(value)), "$1")
	base := strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(plain), ""), " ", "-")
	name := base
	for n := 1; d.anchors[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	d.anchors[name] = true
	return []byte(name)
}

func (d *document) Put(value []byte) { d.anchors[string(value)] = true }

func title(node ast.Node, source []byte) string {
	for n := node.FirstChild(); n != nil; n = n.NextSibling() {
		if h, is := n.(*ast.Heading); is {
			return string(h.Lines().Value(source))
		}
	}
	return "Rouse"
}

type section struct {
	Page, Document, Anchor, Heading, Text string
	level                                 int
}

// sections returns the parts of d. The first is the text before the first heading below the title.
func (d *document) sections() []section {
	all := []section{{Page: page(d.path), Document: d.title, level: 1}}
	for n := d.node.FirstChild(); n != nil; n = n.NextSibling() {
		words := d.plain(n)
		h, is := n.(*ast.Heading)
		switch {
		case is && h.Level > 1:
			anchor, _ := h.AttributeString("id")
			name, _ := anchor.([]byte)
			all = append(all, section{Page: page(d.path), Document: d.title, Anchor: string(name), Heading: words, level: h.Level})
		case !is:
			last := &all[len(all)-1]
			last.Text = strings.TrimSpace(last.Text + " " + words)
		}
	}
	return all
}

func (d *document) plain(n ast.Node) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch t := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(t.Segment.Value(d.source))
			}
			return ast.WalkContinue, nil
		case *ast.CodeBlock, *ast.FencedCodeBlock:
			if entering {
				b.Write(t.Lines().Value(d.source))
			}
		}
		if n.Type() == ast.TypeBlock {
			b.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	return strings.Join(strings.Fields(b.String()), " ")
}

// links returns pointers to the targets of a document's links and images.
func links(node ast.Node) (all []*[]byte) {
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			switch l := n.(type) {
			case *ast.Link:
				all = append(all, &l.Destination)
			case *ast.Image:
				all = append(all, &l.Destination)
			}
		}
		return ast.WalkContinue, nil
	})
	return all
}

// target resolves a link of d, and returns the file that must be copied for it, if any.
func (d *document) target(root, link string, all map[string]*document) (to, file string, err error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return link, "", nil
	}
	name, anchor, _ := strings.Cut(link, "#")
	other := d
	if name != "" {
		at := path.Join(path.Dir(d.path), name)
		if _, err := os.Stat(filepath.Join(root, at)); err != nil {
			return link, "", fmt.Errorf("%s links to %s, which is not there", d.path, link)
		}
		if other = all[at]; other == nil {
			switch path.Ext(at) {
			case ".svg", ".png", ".json":
				return link, at, nil
			}
			return repository + at, "", nil
		}
		link = strings.Repeat("../", strings.Count(d.path, "/")) + page(at)
		if anchor != "" {
			link += "#" + anchor
		}
	}
	if anchor != "" && !other.anchors[anchor] {
		return link, "", fmt.Errorf("%s links to the heading %s of %s, which has none", d.path, anchor, other.path)
	}
	return link, "", nil
}

type group struct {
	Name  string
	Pages []entry
}

// Has reports whether page is in g, whose part of the menu is then open.
func (g group) Has(page string) bool {
	return slices.ContainsFunc(g.Pages, func(e entry) bool { return e.Page == page })
}

type entry struct{ Page, Name string }

var (
	item    = regexp.MustCompile(`(?m)^- \*\*([^*]+)\*\*:((?:.*\n)(?:  .*\n)*)`)
	entryOf = regexp.MustCompile(`\[([^\]]+)\]\(([^)#]+\.md)\)`)
)

func menuOf(readme *document) (menu []group, err error) {
	_, list, found := bytes.Cut(readme.source, []byte("\n## Documentation\n"))
	if !found {
		return nil, errors.New("README.md has no section Documentation")
	}
	menu = append(menu, group{Pages: []entry{{"index.html", "Rouse"}}})
	for _, m := range item.FindAllSubmatch(list, -1) {
		g := group{Name: string(m[1])}
		for _, e := range entryOf.FindAllSubmatch(m[2], -1) {
			g.Pages = append(g.Pages, entry{page(string(e[2])), strings.ReplaceAll(string(e[1]), "\n", " ")})
		}
		menu = append(menu, g)
	}
	return menu, nil
}
