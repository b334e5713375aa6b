// Which topic of a graph of routers stands where.
//
// A destination has one source (§6), so the graph is trees, and rings with trees on them: a ring is a
// tree whose last leaf leads back to its root.  Nothing here counts on that one source: a topic met
// twice is a leaf that names it.

/** The trees of the graph: `{topic, branches: [{routers, topic, branches} or {routers, back}]}`. */
export function trees(routers) {
  const flows = new Map(), sources = new Map(), seen = new Set();
  for (const { router, source, dest } of routers) {
    const into = flows.get(source) ?? new Map();
    flows.set(source, into.set(dest, [...(into.get(dest) ?? []), router]));
    sources.set(dest, source);
  }
  // What is on a ring comes last, so that the way back runs below everything and crosses nothing.
  const tree = (topic, ring) => {
    seen.add(topic);
    const into = [...(flows.get(topic) ?? [])].sort(([a], [b]) => ring.has(a) - ring.has(b) || (a < b ? -1 : 1));
    const branches = into.map(([dest, routers]) => ({ routers, ...(seen.has(dest) ? { back: dest } : tree(dest, ring)) }));
    return { topic, branches };
  };
  const ringAbove = (topic) => {
    const walked = [];
    for (; !walked.includes(topic); topic = sources.get(topic)) walked.push(topic);
    return walked.slice(walked.indexOf(topic)).sort();
  };
  const topics = [...flows.keys()].sort(), found = [];
  for (const topic of topics) if (!sources.has(topic)) found.push(tree(topic, new Set()));
  for (const topic of topics) {
    if (seen.has(topic)) continue;
    const ring = ringAbove(topic);
    found.push(tree(ring[0], new Set(ring)));
  }
  return found;
}
