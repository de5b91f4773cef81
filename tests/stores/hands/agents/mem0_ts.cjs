// mem0's TypeScript edition in the working directory, with a tiny embedder instead of a model. Adds the texts it is given
// and prints what it then has.
process.env.MEM0_TELEMETRY = "false";
process.env.MEM0_DIR = process.cwd();
const crypto = require("crypto");
const { Memory } = require("/opt/node/node_modules/mem0ai/dist/oss/index.js");

const embed = async (text) => [...crypto.createHash("sha256").update(text).digest().subarray(0, 8)].map((n) => n / 255);

(async () => {
    const memory = new Memory({
        historyDbPath: "memory.db",
        embedder: { provider: "openai", config: { apiKey: "none", embeddingDims: 8 } },
        llm: { provider: "openai", config: { apiKey: "none" } },
        vectorStore: { provider: "memory", config: { collectionName: "memories", dimension: 8, dbPath: "vector_store.db" } },
    });
    memory.embedder = { embed, embedBatch: (texts) => Promise.all(texts.map(embed)) };
    for (const text of process.argv.slice(2)) await memory.add(text, { userId: "ada", infer: false });
    const found = await memory.getAll({ filters: { user_id: "ada" } });
    console.log(JSON.stringify(found.results.map((each) => [each.id, each.memory])));
})();
